#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/crc32c.h"
#include "turbogr/core/mapped_pages.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/philox.h"

namespace turbogr {
namespace {

using test::message_of;
using test::TemporaryFolder;

TEST(Crc32c, GivesThePublishedSums) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283u);
  const std::vector<unsigned char> zeros(32, 0);
  EXPECT_EQ(crc32c(0, zeros.data(), 32), 0x8a9136aau);  // RFC 3720, B.4
  const std::vector<unsigned char> ones(32, 0xff);
  EXPECT_EQ(crc32c(0, ones.data(), 32), 0x62a8ab43u);
  EXPECT_EQ(crc32c(0, nullptr, 0), 0u);
}

TEST(Crc32c, BothPathsAgreeWhereverTheBytesAreCut) {
  std::vector<unsigned char> bytes(1003);
  PhiloxStream random(3);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.uniform() * 256);
  const std::uint32_t whole = crc32c(0, bytes.data(), bytes.size());
  EXPECT_EQ(crc32c_portable(0, bytes.data(), bytes.size()), whole);
  for (const std::size_t cut : {0, 1, 7, 8, 9, 500, 1002, 1003}) {
    const std::uint32_t first = crc32c(0, bytes.data(), cut);
    EXPECT_EQ(crc32c(first, bytes.data() + cut, bytes.size() - cut), whole);
    const std::uint32_t second = crc32c(0, bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(crc32c_joined(first, second, bytes.size() - cut), whole);
    EXPECT_EQ(crc32c_portable(first, bytes.data() + cut, bytes.size() - cut), whole);
  }
}

// Pages of files that are in memory, as the system counts them.
std::int64_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return shared * ::sysconf(_SC_PAGESIZE);
}

TEST(MappedPages, AreLetGoAndComeBack) {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 1'000'000; ++i) content += fmt::format("{:8}", i);
  replace_file(folder / "large", content);
  const MappedFile file(folder / "large");
  const auto same = [&] { return std::memcmp(file.data(), content.data(), file.size()) == 0; };
  ASSERT_EQ(file.size(), content.size());
  EXPECT_TRUE(same());
  const std::int64_t read = mapped_bytes();
  forget_pages(file.data() + 5000, file.size() - 5000);
  EXPECT_LE(mapped_bytes(), read - 7'500'000);
  EXPECT_TRUE(same());
}

TEST(Files, ReplaceLeavesTheNewContentAndNothingBeside) {
  const TemporaryFolder folder;
  replace_file(folder / "a", "old");
  replace_file(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.partial"));
  replace_file(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
}

TEST(Files, FailuresNameThePathAndTheSystemsWords) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of([&] { read_file("/nowhere/x"); }),
            "cannot open '/nowhere/x': No such file or directory; check the path");
  EXPECT_EQ(
      message_of([&] { read_file(folder.path()); }),
      fmt::format("'{}' is not a plain file but a folder, pipe or device; name or restore the "
                  "file",
                  folder.path().string()));
  test::write_file(folder / "ten", "0123456789");
  EXPECT_EQ(read_file(folder / "ten", 10).size(), 10u);
  EXPECT_NE(message_of([&] { read_file(folder / "ten", 9); }).find("has 10 bytes; at most 9"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { replace_file("/nowhere/x", "text"); }),
            "cannot create '/nowhere/x.partial': No such file or directory; check the path");
  EXPECT_EQ(message_of([&] { rename_durably(folder / "a", folder / "b"); }),
            fmt::format("cannot rename '{}': No such file or directory; check the path",
                        (folder / "a").string()));
  EXPECT_EQ(message_of([&] { sync_folder(folder / "none"); }),
            fmt::format("cannot open '{}': No such file or directory; check the path",
                        (folder / "none").string()));
}

TEST(Files, AFullDiskSaysSo) {
  OutputFile full("/dev/full");
  EXPECT_EQ(message_of([&] { full.write("x"); }),
            "cannot write '/dev/full': No space left on device; free some room there or write "
            "to another disk");
}

TEST(ReplaceFile, WritesIntoPipesAndThroughLinks) {
  const TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  replace_file(pipe, "words");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof(got)), 5);
  EXPECT_EQ(std::string(got), "words");
  ::close(reader);

  const std::string file = (folder.path() / "file").string();
  const std::string link = (folder.path() / "link").string();
  replace_file(file, "old");
  std::filesystem::create_symlink("file", link);
  replace_file(link, "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(file), "new");

  EXPECT_NE(message_of([&] { replace_file(folder.path().string(), "x"); }).find("is a folder"),
            std::string::npos);
  const std::string kept = (folder.path() / "kept").string();
  {
    OutputTarget target(kept);
    OutputFile half(target.writing());
    half.write("half");
  }
  EXPECT_FALSE(std::filesystem::exists(kept));
  EXPECT_FALSE(std::filesystem::exists(kept + ".partial"));
}

}  // namespace
}  // namespace turbogr
