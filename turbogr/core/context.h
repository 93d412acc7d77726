// What every operator is given first: the device, its stream, the threads, scratch memory, and
// where trace events go. Nothing of this is global; a rank owns one Context.
//
//   Context ctx({.threads = 2, .workspace_bytes = plan});
//   layer_norm(ctx, x, {}, y, saved);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "turbogr/core/check.h"
#include "turbogr/core/device.h"
#include "turbogr/core/section_timer.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/core/trace.h"
#include "turbogr/core/workspace.h"

namespace turbogr {

inline constexpr bool kWithCuda = TGR_WITH_CUDA;

// Device tags: kernels are overloads on them.
struct Cpu {
  ThreadPool& pool;
  Workspace& workspace;
  SimdLevel simd;
};
struct Cuda {
  void* stream;
  Workspace& workspace;
  SectionTimer* sections = nullptr;
};

struct ContextOptions {
  Device device = Device::kCpu;
  int threads = 0;                     // 0: one a core
  std::size_t workspace_bytes = 0;     // may grow later with workspace().reserve
  SimdLevel simd = best_simd_level();  // lowered by tests; asking for more than there is throws
  std::uint64_t seed = 0;
  Trace* trace = nullptr;
};

class Context {
 public:
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const { return options_.device; }
  int threads() const { return pool_.size(); }
  SimdLevel simd() const { return options_.simd; }
  std::uint64_t seed() const { return options_.seed; }
  Trace* trace() const { return options_.trace; }
  // Scratch and threads are lent, not part of the value: a const Context is what operators take.
  Workspace& workspace() const { return workspace_; }
  ThreadPool& pool() const { return pool_; }
  void* stream() const { return stream_; }
  SectionTimer* sections() const { return sections_; }
  void set_sections(SectionTimer* timer) { sections_ = timer; }  // null: nothing is timed
  // For work that stays on the host: a CPU context with the same threads, itself where it is one.
  const Context& host() const { return host_ ? *host_ : *this; }

 private:
  ContextOptions options_;
  mutable ThreadPool pool_;
  mutable Workspace workspace_;
  void* stream_ = nullptr;
  SectionTimer* sections_ = nullptr;
  std::unique_ptr<Context> host_;
};

// Which section of a step an operator's time on a GPU belongs to.
inline SectionScope section_scope(const Context& ctx, Section section) {
  return {ctx.sections(), ctx.stream(), section};
}

// Calls body with the tag of the context's device; a build without CUDA never instantiates that
// half.
template <class Body>
void on_device(const Context& ctx, Body&& body) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) {
      body(Cuda{ctx.stream(), ctx.workspace(), ctx.sections()});
      return;
    }
  }
  body(Cpu{ctx.pool(), ctx.workspace(), ctx.simd()});
}

// For operators that only the host has.
template <class Body>
void on_cpu(const Context& ctx, const char* op, Body&& body) {
  TGR_CHECK(ctx.device() == Device::kCpu, op,
            ": runs on the CPU only; give it ctx.host() and host memory");
  body(Cpu{ctx.pool(), ctx.workspace(), ctx.simd()});
}

}  // namespace turbogr
