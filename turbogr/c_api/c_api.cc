#include "turbogr/c_api/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <string>

#include "turbogr/c_api/widen.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/version.h"
#include "turbogr/ops/attention/attention_checks.h"
#include "turbogr/ops/attention/attention_kernels.h"

namespace turbogr::c_api {
namespace {

constexpr const char* kOp = "tgr_attention";

std::string& last_error() {
  thread_local std::string text = "no error";
  return text;
}

// No exception may leave the library.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error() = error.what();
  } catch (...) {
    last_error() = "unknown error";
  }
  return 1;
}

enum class Direction { kForward, kBackward };

// The description as this library knows it. One from an older header ends earlier: what it lacks
// takes its zero meaning. One from a newer header may go on, but only with zeros.
tgr_attention complete(const tgr_attention* given) {
  TGR_CHECK(given != nullptr, kOp, ": the description is NULL");
  const std::size_t size = given->struct_size;
  constexpr std::size_t kLeast = offsetof(tgr_attention, causal);
  constexpr std::size_t kMost = 1 << 16;
  TGR_CHECK(size >= kLeast && size <= kMost, kOp, ": struct_size is ", size,
            "; set it to sizeof(tgr_attention), which is ", sizeof(tgr_attention),
            " in this version and was never below ", kLeast);
  const char* const bytes = reinterpret_cast<const char*>(given);
  for (std::size_t i = sizeof(tgr_attention); i < size; ++i) {
    TGR_CHECK(bytes[i] == 0, kOp, ": byte ", i,
              " is set, which belongs to a newer header; this is ", version(),
              ", whose tgr_attention has ", sizeof(tgr_attention),
              " bytes; install the library of that header, or leave the new fields zero");
  }
  tgr_attention known = {};
  std::memcpy(&known, given, std::min(size, sizeof known));
  return known;
}

void check_sizes(const tgr_attention* a) {
  TGR_CHECK(a->dtype == TGR_BF16 || a->dtype == TGR_F32 || a->dtype == TGR_F64, kOp, ": dtype is ",
            static_cast<int>(a->dtype), "; use TGR_BF16, TGR_F32 or TGR_F64");
  TGR_CHECK(a->tokens >= 0 && a->tokens <= std::numeric_limits<std::int32_t>::max(), kOp, ": ",
            a->tokens, " tokens; wanted 0 to 2^31 - 1");
  TGR_CHECK(a->batch >= 0 && (a->batch > 0 || a->tokens == 0), kOp, ": ", a->batch,
            " sequences for ", a->tokens, " tokens");
  ops::check_attention_scalars(kOp, a->heads, a->alpha, a->norm_length);
  ops::check_head_width(kOp, "q", std::int64_t{a->query_width} * a->heads, a->heads);
  ops::check_head_width(kOp, "v", std::int64_t{a->value_width} * a->heads, a->heads);
  TGR_CHECK(a->causal == 0 || a->causal == 1, kOp, ": causal is ", a->causal, "; use 0 or 1");
  TGR_CHECK(a->window >= 0, kOp, ": window is ", a->window,
            "; it must be 0 (unlimited) or the number of tokens to look back");
  TGR_CHECK(a->causal == 1 || (a->window == 0 && a->num_targets == nullptr), kOp,
            ": a window or targets without causal; set causal to 1");
  TGR_CHECK(a->position == nullptr || a->position_length >= 1, kOp,
            ": a position table with position_length ", a->position_length,
            "; give the longest length it serves");
  TGR_CHECK(a->dposition == nullptr || a->position != nullptr, kOp,
            ": dposition without a position table");
  TGR_CHECK(a->dtime == nullptr || a->time != nullptr, kOp, ": dtime without a time table");
}

// Operators find the rest: strides, widths, missing memory.
template <class T>
Rows<T> rows_of(const void* data, std::int64_t tokens, std::int64_t width, std::int64_t stride) {
  return {static_cast<T*>(const_cast<void*>(data)), tokens, width, stride};
}

template <class A>
View<A, 1> vector_of(const void* data, std::int64_t size) {
  return {static_cast<A*>(const_cast<void*>(data)), {data == nullptr ? 0 : size}};
}

template <class T>
ops::AttentionProblem<T> problem_of(const tgr_attention& a) {
  using A = Accum<T>;
  const std::int64_t query_width = std::int64_t{a.heads} * a.query_width;
  const std::int64_t value_width = std::int64_t{a.heads} * a.value_width;
  ops::AttentionProblem<T> p;
  p.q.values = rows_of<const T>(a.q, a.tokens, query_width, a.q_stride);
  p.k = rows_of<const T>(a.k, a.tokens, query_width, a.k_stride);
  p.v = rows_of<const T>(a.v, a.tokens, value_width, a.v_stride);
  p.bias.position = vector_of<const A>(a.position, 2 * a.position_length - 1);
  p.bias.time = vector_of<const A>(a.time, ops::kTimeBuckets);
  if (a.time != nullptr) {
    p.bias.key_times = vector_of<const std::int64_t>(a.key_times, a.tokens);
    p.bias.query_times = vector_of<const std::int64_t>(a.query_times, a.tokens);
  }
  p.heads = a.heads;
  p.alpha = a.alpha;
  p.norm_length = a.norm_length;
  p.mask.window = a.window;
  p.max_length = a.position_length;
  return p;
}

// Of what the caller gives as int32.
std::int64_t own_bytes(const tgr_attention& a) {
  std::size_t bytes = workspace_bytes_of<std::int64_t>(std::int64_t{a.batch} + 1);
  if (a.num_targets != nullptr || a.causal == 0) bytes += workspace_bytes_of<std::int64_t>(a.batch);
  return static_cast<std::int64_t>(bytes);
}

ops::AttentionShape shape_of(const tgr_attention& a) {
  return {.device = Device::kCuda,
          .tokens = a.tokens,
          .batch = a.batch,
          .max_length = a.position_length,
          .heads = a.heads,
          .query_width = a.query_width,
          .value_width = a.value_width,
          .tables = a.position != nullptr || a.time != nullptr,
          .masks = a.window > 0 || a.num_targets != nullptr || a.causal == 0};
}

template <class Body>
void with_format(tgr_dtype dtype, Body&& body) {
  switch (dtype) {
    case TGR_BF16:
      return body(bf16{});
    case TGR_F32:
      return body(float{});
    case TGR_F64:
      return body(double{});
  }
}

void check_gpu() {
  TGR_CHECK(kWithCuda, kOp, ": this library was built without CUDA; build it with `make cuda`");
  TGR_CHECK(device_memory().total > 0, kOp, ": no usable NVIDIA GPU was found; check `nvidia-smi`");
}

std::size_t bytes_of(const tgr_attention* a, Direction direction) {
  check_sizes(a);
  check_gpu();
  std::size_t bytes = 0;
  if constexpr (kWithCuda) {
    with_format(a->dtype, [&](auto format) {
      bytes = ops::kernels::attention_workspace_bytes<decltype(format)>(
          ops::AttentionKind::kHstu, shape_of(*a), direction == Direction::kBackward);
    });
    bytes += static_cast<std::size_t>(own_bytes(*a));
  }
  return bytes;
}

template <class T>
void check_arguments(const tgr_attention& a, const ops::AttentionProblem<T>& p,
                     Direction direction) {
  TGR_CHECK(a.offsets != nullptr, kOp, ": offsets are NULL; ", a.batch, " sequences need ",
            a.batch + 1, " of them");
  ops::AttentionProblem<T> checked = p;
  // They are not looked at on a device; any pointer does.
  const std::int64_t stand_in = 0;
  checked.q.offsets = {&stand_in, {std::int64_t{a.batch} + 1}};
  ops::check_attention_inputs(kOp, Device::kCuda, checked.q, p.k, p.v, p.bias, p.heads, p.alpha,
                              p.norm_length, p.mask);
  if (direction == Direction::kForward) {
    ops::check_rows(kOp, "out", rows_of<T>(a.out, a.tokens, p.v.cols, a.out_stride), a.tokens,
                    p.v.cols);
  } else {
    ops::check_rows(kOp, "dout", rows_of<T>(a.dout, a.tokens, p.v.cols, a.dout_stride), a.tokens,
                    p.v.cols);
    ops::check_rows(kOp, "dq", rows_of<T>(a.dq, a.tokens, p.k.cols, a.dq_stride), a.tokens,
                    p.k.cols);
    ops::check_rows(kOp, "dk", rows_of<T>(a.dk, a.tokens, p.k.cols, a.dk_stride), a.tokens,
                    p.k.cols);
    ops::check_rows(kOp, "dv", rows_of<T>(a.dv, a.tokens, p.v.cols, a.dv_stride), a.tokens,
                    p.v.cols);
  }
}

template <class T>
void run(const tgr_attention& a, Direction direction, void* memory, std::size_t bytes,
         void* stream) {
  ops::AttentionProblem<T> p = problem_of<T>(a);
  check_arguments(a, p, direction);
  const std::size_t needed = bytes_of(&a, direction);
  TGR_CHECK(bytes >= needed && (memory != nullptr || needed == 0), kOp, ": a workspace of ",
            memory == nullptr ? 0 : bytes, " bytes; this call needs ", needed);
  TGR_CHECK(reinterpret_cast<std::uintptr_t>(memory) % Workspace::kAlignment == 0, kOp,
            ": the workspace must begin at a multiple of ", Workspace::kAlignment, " bytes");
  if constexpr (kWithCuda) {
    Workspace workspace(static_cast<std::byte*>(memory), bytes, Device::kCuda);
    const Cuda cuda{stream, workspace};
    WorkspaceScope scratch(workspace);
    const View<std::int64_t, 1> offsets = scratch.take<std::int64_t>(std::int64_t{a.batch} + 1);
    widen(cuda, a.offsets, offsets.size(), offsets.data);
    p.q.offsets = offsets;
    if (a.causal == 0) {
      // A prefix that is the whole sequence: everything sees everything.
      const View<std::int64_t, 1> lengths = scratch.take<std::int64_t>(a.batch);
      lengths_of(cuda, offsets.data, a.batch, lengths.data);
      p.mask.num_prefix = lengths;
    } else if (a.num_targets != nullptr) {
      const View<std::int64_t, 1> targets = scratch.take<std::int64_t>(a.batch);
      widen(cuda, a.num_targets, a.batch, targets.data);
      p.mask.num_targets = targets;
    }
    using A = Accum<T>;
    if (direction == Direction::kForward) {
      ops::kernels::hstu_attention<T>(cuda, p, rows_of<T>(a.out, a.tokens, p.v.cols, a.out_stride));
    } else {
      ops::kernels::hstu_attention_backward<T>(
          cuda, p, rows_of<const T>(a.dout, a.tokens, p.v.cols, a.dout_stride),
          {.dq = rows_of<T>(a.dq, a.tokens, p.k.cols, a.dq_stride),
           .dk = rows_of<T>(a.dk, a.tokens, p.k.cols, a.dk_stride),
           .dv = rows_of<T>(a.dv, a.tokens, p.v.cols, a.dv_stride),
           .dbias = {vector_of<A>(a.dposition, 2 * a.position_length - 1),
                     vector_of<A>(a.dtime, ops::kTimeBuckets)}});
    }
  }
}

int call(const tgr_attention* a, Direction direction, void* memory, std::size_t bytes,
         void* stream) {
  return guarded([&] {
    const tgr_attention known = complete(a);
    check_sizes(&known);
    with_format(known.dtype, [&](auto format) {
      run<decltype(format)>(known, direction, memory, bytes, stream);
    });
  });
}

int query(const tgr_attention* a, Direction direction, std::size_t* bytes) {
  return guarded([&] {
    TGR_CHECK(bytes != nullptr, kOp, ": nowhere to put the number of bytes");
    const tgr_attention known = complete(a);
    *bytes = bytes_of(&known, direction);
  });
}

}  // namespace
}  // namespace turbogr::c_api

using turbogr::c_api::Direction;

int tgr_attention_forward_bytes(const tgr_attention* attention, size_t* bytes) {
  return turbogr::c_api::query(attention, Direction::kForward, bytes);
}
int tgr_attention_backward_bytes(const tgr_attention* attention, size_t* bytes) {
  return turbogr::c_api::query(attention, Direction::kBackward, bytes);
}
int tgr_attention_forward(const tgr_attention* attention, void* workspace, size_t workspace_bytes,
                          void* stream) {
  return turbogr::c_api::call(attention, Direction::kForward, workspace, workspace_bytes, stream);
}
int tgr_attention_backward(const tgr_attention* attention, void* workspace, size_t workspace_bytes,
                           void* stream) {
  return turbogr::c_api::call(attention, Direction::kBackward, workspace, workspace_bytes, stream);
}
const char* tgr_last_error(void) { return turbogr::c_api::last_error().c_str(); }
const char* tgr_version(void) { return turbogr::version(); }
