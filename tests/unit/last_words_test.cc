#include "turbogr/core/last_words.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

// Looks at a page of a file that has been cut away. Does not come back.
void look_past_the_end(const std::string& path) {
  test::write_file(path, std::string(8192, 'x'));
  const int file = ::open(path.c_str(), O_RDWR);
  const auto* page =
      static_cast<const volatile char*>(::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0));
  if (page == MAP_FAILED || ::ftruncate(file, 0) != 0) return;
  static_cast<void>(page[4096]);
}

extern "C" void end_with_7(int) { ::_exit(7); }

class LastWords : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string path_ = (folder_ / "items.bin").string();

  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer has a handler of its own";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(LastWords, AProgramEndsWithStatusOne) {
  EXPECT_EXIT(
      {
        leave_last_words();
        look_past_the_end(path_);
      },
      ::testing::ExitedWithCode(1), "items.bin' was cut short while it was in use");
}

TEST_F(LastWords, AHostIsEndedByTheSignalAfterThem) {
  EXPECT_EXIT(
      {
        const LastWordsOfHost last_words;
        look_past_the_end(path_);
      },
      ::testing::KilledBySignal(SIGBUS), "items.bin' was cut short while it was in use");
}

TEST_F(LastWords, AHostsHandlerStaysAndIsLeftWhenItCameLater) {
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, end_with_7);
        const LastWordsOfHost last_words;
        look_past_the_end(path_);
      },
      ::testing::ExitedWithCode(7), "^$");
  EXPECT_EXIT(
      {
        {
          const LastWordsOfHost last_words;
          ::signal(SIGBUS, end_with_7);
        }
        look_past_the_end(path_);
      },
      ::testing::ExitedWithCode(7), "^$");
}

TEST_F(LastWords, AHostIsAsItWasAfterwards) {
  EXPECT_EXIT(
      {
        { const LastWordsOfHost last_words; }
        look_past_the_end(path_);
      },
      ::testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace turbogr
