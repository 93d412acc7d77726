#include "turbogr/core/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/tensor.h"

namespace turbogr {
namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

class HostMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::size_t available() const {
    return detail::available_host_memory((folder_ / "proc").string(),
                                         (folder_ / "groups").string());
  }
  test::TemporaryFolder folder_;
};

TEST_F(HostMemory, IsUnknownWhereNothingSays) { EXPECT_EQ(available(), kUnknown); }

TEST_F(HostMemory, IsTheMachinesWithoutALimit) {
  write("proc/meminfo", "MemTotal:  200 kB\nMemAvailable:   100 kB\n");
  EXPECT_EQ(available(), 100u << 10);
  write("proc/self/cgroup", "0::/\n");
  write("groups/memory.max", "max\n");
  write("groups/memory.current", "77\n");
  EXPECT_EQ(available(), 100u << 10);
}

TEST_F(HostMemory, IsWhatTheTightestGroupLeaves) {
  write("proc/meminfo", "MemAvailable:   100 kB\n");
  write("proc/self/cgroup", "0::/jobs/7\n");
  write("groups/jobs/7/memory.max", "50000\n");
  write("groups/jobs/7/memory.current", "20000\n");
  write("groups/jobs/7/memory.stat", "anon 12\ninactive_file 5000\n");
  EXPECT_EQ(available(), 35000u);
  write("groups/jobs/memory.max", "10000\n");
  write("groups/jobs/memory.current", "9000\n");
  EXPECT_EQ(available(), 1000u);
  write("groups/jobs/memory.current", "19000\n");
  EXPECT_EQ(available(), 0u);
}

// A store that was read again and again: its pages are "active", and dropped all the same.
TEST_F(HostMemory, CountsNoPagesOfFiles) {
  write("proc/self/cgroup", "0::/\n");
  write("groups/memory.max", "50000\n");
  write("groups/memory.current", "49000\n");
  write("groups/memory.stat", "anon 8000\ninactive_file 1000\nactive_file 40000\n");
  EXPECT_EQ(available(), 42000u);
}

TEST_F(HostMemory, IsWhatALimitOfTheAddressSpaceLeaves) {
  write("proc/meminfo", "MemAvailable:   100 kB\n");
  write("proc/self/status", "VmPeak:\t  70 kB\nVmSize:\t  60 kB\n");
  write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max address space         unlimited            unlimited            bytes\n");
  EXPECT_EQ(available(), 100u << 10);
  write("proc/self/limits",
        "Max data size             1                    1                    bytes\n"
        "Max address space         81920                unlimited            bytes\n");
  EXPECT_EQ(available(), 20u << 10);
  write("proc/self/status", "VmSize:\t  90 kB\n");
  EXPECT_EQ(available(), 0u);
}

TEST(HostMemoryThatFits, LeavesSomethingForOthers) {
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_TRUE(detail::fits(7936 * kMiB, 8192 * kMiB));
  EXPECT_FALSE(detail::fits(7937 * kMiB, 8192 * kMiB));
  EXPECT_TRUE(detail::fits(70 * kMiB, 80 * kMiB));  // a small container still runs
  EXPECT_FALSE(detail::fits(71 * kMiB, 80 * kMiB));
  EXPECT_TRUE(detail::fits(kUnknown, kUnknown));
}

TEST_F(HostMemory, KnowsTheOlderHierarchies) {
  write("proc/self/cgroup", "7:cpu:/x\nnonsense\n4:memory:/x\n5:memory:no-slash\n0::/\n");
  write("groups/memory/x/memory.limit_in_bytes", "3000\n");
  write("groups/memory/x/memory.usage_in_bytes", "1000\n");
  write("groups/memory/x/memory.stat", "total_inactive_file 60\ntotal_active_file 40\n");
  EXPECT_EQ(available(), 2100u);
}

TEST(HostMemoryOfTensors, IsAskedForFirst) {
  const std::size_t there = available_host_memory();
  ASSERT_NE(there, kUnknown);
  EXPECT_GT(there, 0u);
  EXPECT_TRUE(detail::host_has(1));
  EXPECT_FALSE(detail::host_has(there + (std::size_t{1} << 30)));
  const std::string message = test::message_of([&] {
    const Tensor tensor(DType::kU8, {static_cast<std::int64_t>(there) + (std::int64_t{1} << 30)});
  });
  EXPECT_NE(message.find("out of memory on cpu: a u8 tensor"), std::string::npos) << message;
  EXPECT_NE(message.find(" are free"), std::string::npos) << message;
}

}  // namespace
}  // namespace turbogr
