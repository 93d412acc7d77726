// The GPUs a build is for: ours, or those asked for. Only configured, nothing is compiled.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

using test::has;
using test::Outcome;
using test::run_command;

// What CMake says, then the commands of everything.
Outcome configure(const test::TemporaryFolder& folder, const std::string& options) {
  const std::string build = folder.path().string();
  return run_command("env -u CUDAARCHS " + test::cmake_program() + " -G Ninja -S " +
                     test::source_dir() + " -B " + build +
                     " -DTGR_CUDA=ON -DTGR_ONEDNN=OFF -DTGR_TESTS=OFF -DTGR_UNITY=OFF " + options +
                     " && ninja -C " + build + " -t commands");
}

TEST(CudaArchitectures, AreThoseAskedForAndHoppersKernelsAreThereForHopperAlone) {
  if (run_command("nvcc --version").status != 0) GTEST_SKIP() << "there is no nvcc";
  const test::TemporaryFolder folder;
  const Outcome ours = configure(folder, "");
  ASSERT_EQ(ours.status, 0) << ours.output;
  EXPECT_TRUE(has(ours, "arch=compute_80,code="));
  EXPECT_TRUE(has(ours, "arch=compute_90a,code="));
  EXPECT_TRUE(has(ours, "hopper/attention_128.cu"));
  EXPECT_FALSE(has(ours, "hopper/absent.cc"));

  const Outcome other = configure(folder, "-DCMAKE_CUDA_ARCHITECTURES=89-real");
  ASSERT_EQ(other.status, 0) << other.output;
  EXPECT_TRUE(has(other, "Without Hopper's attention kernels: CMAKE_CUDA_ARCHITECTURES is 89-real"))
      << other.output;
  EXPECT_TRUE(has(other, "arch=compute_89,code="));
  EXPECT_FALSE(has(other, "compute_80"));
  EXPECT_FALSE(has(other, "compute_90a"));
  EXPECT_FALSE(has(other, "hopper/attention_128.cu"));
  EXPECT_FALSE(has(other, "attention_bench"));
  EXPECT_TRUE(has(other, "hopper/absent.cc"));
}

}  // namespace
}  // namespace turbogr
