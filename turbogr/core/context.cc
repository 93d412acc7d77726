#include "turbogr/core/context.h"

#include "turbogr/core/device_memory.h"

namespace turbogr {

// In device_memory.cc.
namespace detail {
void* make_stream();
void destroy_stream(void* stream) noexcept;
}  // namespace detail

namespace {

// Before anything is allocated there.
const ContextOptions& checked(const ContextOptions& options) {
  TGR_CHECK(options.device != Device::kPinned,
            "a context runs on cpu or cuda, not on pinned memory");
  TGR_CHECK(options.device == Device::kCpu || kWithCuda,
            "this build has no CUDA; set device = \"cpu\", or build with `make cuda`");
  TGR_CHECK(options.device == Device::kCpu || device_memory().total > 0,
            "no usable NVIDIA GPU was found; set device = \"cpu\", or check `nvidia-smi`");
  TGR_CHECK(options.simd <= best_simd_level(), "instruction set ", name_of(options.simd),
            " was asked for; this machine has up to ", name_of(best_simd_level()));
  return options;
}

}  // namespace

Context::Context(const ContextOptions& options)
    : options_(checked(options)),
      pool_(options.device == Device::kCuda ? 1 : options.threads),
      workspace_(options.workspace_bytes, options.device) {
  if (options.device != Device::kCuda) return;
  stream_ = detail::make_stream();
  ContextOptions host = options;
  host.device = Device::kCpu;
  host.workspace_bytes = 0;
  host_ = std::make_unique<Context>(host);
}

Context::~Context() {
  if (stream_ != nullptr) detail::destroy_stream(stream_);
}

}  // namespace turbogr
