// `turbogr doctor`: what this machine and this build have, for bug reports and first steps.
#if TGR_WITH_ONEDNN
#include <dnnl.h>
#endif
#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/core/version.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/device_communicator.h"

namespace turbogr::apps {
namespace {

std::string dnnl_text() {
#if TGR_WITH_ONEDNN
  const dnnl_version_t* dnnl = dnnl_version();
  return fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch);
#else
  return "not in this build (CPU products are plain loops)";
#endif
}

std::string cuda_text() {
  if (!kWithCuda) return "not in this build (`make cuda` makes one that has it)";
  const DeviceMemory memory = device_memory();
  if (memory.total == 0) return "in this build, but no usable GPU here";
  return fmt::format("yes, {:.1f} of {:.1f} GiB free", static_cast<double>(memory.free) / (1 << 30),
                     static_cast<double>(memory.total) / (1 << 30));
}

// What works here, but not as fast as elsewhere.
std::vector<std::string> warnings() {
  std::vector<std::string> found;
  const SimdLevel level = best_simd_level();
  if (level < SimdLevel::kAvx512Bf16) {
    found.push_back(
        "this processor has no bf16 products: train.dtype = \"bf16\" computes in f32 and only "
        "saves memory");
  }
  if (level < SimdLevel::kAvx2) {
    found.push_back("without AVX2 the portable kernels run, several times slower");
  }
  if (TGR_WITH_ONEDNN == 0) {
    found.push_back("without oneDNN products on the CPU are plain loops, many times slower");
  }
  return found;
}

void run_doctor() {
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  fmt::print("turbogr    {} ({})\n", version(), commit());
  fmt::print("compiler   {}\n", __VERSION__);
  fmt::print("oneDNN     {}\n", dnnl_text());
  fmt::print("processor  {}\n", cpu_model());
  fmt::print("kernels    {} (chosen for this processor)\n", name_of(best_simd_level()));
  fmt::print("threads    {}\n", std::thread::hardware_concurrency());
  fmt::print("memory     {:.1f} GiB\n", gib);
  fmt::print("bf16       {}\n", best_simd_level() == SimdLevel::kAvx512Bf16
                                    ? "native dot products"
                                    : "emulated in f32 (right, not faster)");
  fmt::print("MPI        {}\n", dist::mpi_version());
  fmt::print("CUDA       {}\n", cuda_text());
  fmt::print("NCCL       {}\n", dist::nccl_version());
  for (const std::string& warning : warnings()) fmt::print("warning    {}\n", warning);
}

}  // namespace

void add_doctor(Command& app) {
  app.add_subcommand("doctor", "Show what this machine and this build have")->callback(run_doctor);
}

}  // namespace turbogr::apps
