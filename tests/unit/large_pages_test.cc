#include "turbogr/core/large_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace turbogr {
namespace {

struct Free {
  void operator()(std::byte* data) const { std::free(data); }
};

// The flags that the system keeps of the mapping that holds an address.
std::string flags_of(const void* data) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(data);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  while (std::getline(maps, line)) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      here = begin <= wanted && wanted < end;
    } else if (here && line.rfind("VmFlags:", 0) == 0) {
      return line;
    }
  }
  return "";
}

TEST(LargePages, AreAskedForBelowBigBuffersAlone) {
  constexpr std::size_t kBig = (std::size_t{64} << 20) + 192;
  const std::unique_ptr<std::byte, Free> big(allocate_host_bytes(kBig));
  const std::unique_ptr<std::byte, Free> small(allocate_host_bytes(std::size_t{1} << 20));
  ASSERT_TRUE(big && small);
  std::memset(big.get(), 1, kBig);  // up to its last byte
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.get()) % 64, 0u);
  const std::string flags = flags_of(big.get() + (std::size_t{8} << 20));
  if (flags.empty()) GTEST_SKIP() << "this system does not tell what mappings are";
  EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
  EXPECT_EQ(flags_of(small.get()).find(" hg"), std::string::npos);
}

}  // namespace
}  // namespace turbogr
