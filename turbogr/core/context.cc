#include "turbogr/core/context.h"

namespace turbogr {

Context::Context(const ContextOptions& options)
    : options_(options), pool_(options.threads), workspace_(options.workspace_bytes) {
  TGR_CHECK(options.device == Device::kCpu || kWithCuda,
            "this build has no CUDA; set device = \"cpu\"");
  TGR_CHECK(options.simd <= best_simd_level(), "instruction set ", name_of(options.simd),
            " was asked for; this machine has up to ", name_of(best_simd_level()));
}

}  // namespace turbogr
