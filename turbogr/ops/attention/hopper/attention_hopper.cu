#include <algorithm>
#include <type_traits>

#include "turbogr/core/cuda_call.h"
#include "turbogr/ops/attention/hopper/attention.h"
#include "turbogr/ops/attention/hopper/attention_hopper.h"
#include "turbogr/ops/attention/hopper/fuxi.h"

namespace turbogr::ops {
namespace {

bool on_hopper() {
  int device = 0;
  int major = 0;
  TGR_CUDA_CALL(cudaGetDevice(&device));
  TGR_CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9;
}

// Both models' kernels take the same fields, but that HSTU's also take masks.
using HstuParams = cuda::AttentionParams;
using cuda::FuxiParams;

// What a plan and the size of scratch depend on.
template <class Params>
Params params_of(const AttentionShape& shape) {
  static const float some_table = 0;
  Params params;
  params.tokens = shape.tokens;
  params.batch = static_cast<int>(shape.batch);
  params.heads = shape.heads;
  params.query_width = static_cast<int>(shape.query_width);
  params.value_width = static_cast<int>(shape.value_width);
  if (shape.tables) params.position = &some_table;
  params.position_length = std::max<std::int64_t>(shape.position_length, 1);
  if constexpr (std::is_same_v<Params, HstuParams>) {
    params.max_length = shape.max_length > 0 ? shape.max_length : shape.position_length;
    params.window = shape.masks ? 1 : 0;
  }
  params.deterministic = shape.deterministic;
  return params;
}

bool causal(const AttentionMask& mask) {
  return mask.window == 0 && mask.num_prefix.empty() && mask.num_targets.empty();
}

template <class T>
AttentionShape shape_of(const AttentionProblem<T>& p) {
  return {.device = Device::kCuda,
          .tokens = p.q.tokens(),
          .batch = p.q.batch(),
          .max_length = p.plan != nullptr ? p.plan->shape.max_length : p.max_length,
          .heads = p.heads,
          .query_width = p.q.width() / p.heads,
          .value_width = p.v.cols / p.heads,
          .tables = !p.bias.position.empty() || !p.bias.time.empty(),
          .masks = !causal(p.mask),
          .deterministic = p.deterministic,
          .position_length = (p.bias.position.shape[0] + 1) / 2};
}

template <class T>
bool aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}
template <class T>
bool aligned(Rows<T> matrix) {
  return aligned(matrix.data) && matrix.stride % 8 == 0;
}

template <class T>
bool takes(AttentionKind kind, const AttentionProblem<T>& p) {
  if (p.plan != nullptr && p.plan->bytes == 0) return false;
  const bool mask_served =
      kind == AttentionKind::kHstu ? p.mask.num_prefix.empty() : causal(p.mask);
  return hopper_serves<T>(kind, shape_of(p)) && aligned(p.q.values) && aligned(p.k) &&
         aligned(p.v) && mask_served;
}

void check_plan(const AttentionPlan& plan, AttentionKind kind, const AttentionShape& shape) {
  const AttentionShape& made = plan.shape;
  TGR_CHECK(plan.kind == kind && made.tokens == shape.tokens && made.batch == shape.batch &&
                made.heads == shape.heads && made.query_width == shape.query_width &&
                made.value_width == shape.value_width && made.tables == shape.tables &&
                made.masks == shape.masks,
            "attention: the plan was made for another batch (", made.tokens, " tokens, ",
            made.batch, " sequences, ", made.heads, " heads; here ", shape.tokens, ", ",
            shape.batch, ", ", shape.heads, "); make one for each batch");
}

// Fills params.workspace, with a plan in it.
template <class Params>
void set_workspace(Cuda cuda, AttentionKind kind, const AttentionShape& shape,
                   const AttentionBatch& batch, const AttentionPlan* given, bool backward,
                   WorkspaceScope& scratch, Params& params) {
  if (given != nullptr) {
    check_plan(*given, kind, shape);
    params.workspace = given->memory;
    params.workspace_bytes = given->bytes;
    return;
  }
  const std::size_t bytes = hopper_bytes(kind, shape, backward);
  const AttentionPlan own = {kind, shape,
                             scratch.take<std::byte>(static_cast<std::int64_t>(bytes)).data, bytes};
  make_hopper_plan(cuda, batch, own);
  params.workspace = own.memory;
  params.workspace_bytes = own.bytes;
}

template <class Params, class T>
Params params_of(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& p, bool backward,
                 WorkspaceScope& scratch) {
  const AttentionShape shape = shape_of(p);
  Params params = params_of<Params>(shape);
  params.q = p.q.values.data;
  params.k = p.k.data;
  params.v = p.v.data;
  params.q_stride = p.q.values.stride;
  params.k_stride = p.k.stride;
  params.v_stride = p.v.stride;
  params.offsets = p.q.offsets.data;
  params.alpha = p.alpha;
  params.norm_length = p.norm_length;
  if constexpr (std::is_same_v<T, bf16>) {
    params.position = p.bias.position.data;
    params.time = p.bias.time.data;
  }
  params.position_length = (p.bias.position.shape[0] + 1) / 2;
  if constexpr (std::is_same_v<Params, HstuParams>) {
    params.window = p.mask.window;
    params.num_targets = p.mask.num_targets.data;
    const std::size_t kept = hopper_kept_bytes(kind, shape);
    if (kept > 0 && static_cast<std::size_t>(p.kept.shape[0]) >= kept) {
      params.pair_bias = p.kept.data;
      params.pair_bias_ready = p.kept_ready;
    }
  }
  params.key_times = p.bias.key_times.data;
  params.query_times = p.bias.query_times.data;
  params.stream = cuda.stream;
  set_workspace(cuda, kind, shape, {p.q.offsets, p.bias.key_times, p.bias.query_times}, p.plan,
                backward, scratch, params);
  return params;
}

}  // namespace

template <class T>
bool hopper_serves(AttentionKind kind, const AttentionShape& shape) {
  // HSTU's kernels keep the bias of every pair, so they must know how many there can be.
  const bool countable = kind == AttentionKind::kFuxi || !(shape.tables || shape.masks) ||
                         std::max(shape.max_length, shape.position_length) > 0;
  return std::is_same_v<T, bf16> && countable && shape.query_width % 8 == 0 &&
         shape.value_width % 8 == 0 && on_hopper();
}

std::size_t hopper_bytes(AttentionKind kind, const AttentionShape& shape, bool backward) {
  if (kind == AttentionKind::kHstu) {
    const auto params = params_of<HstuParams>(shape);
    return backward ? cuda::attention_backward_workspace_bytes(params)
                    : cuda::attention_forward_workspace_bytes(params);
  }
  const auto params = params_of<FuxiParams>(shape);
  return backward ? cuda::fuxi_backward_workspace_bytes(params)
                  : cuda::fuxi_forward_workspace_bytes(params);
}

std::size_t hopper_kept_bytes(AttentionKind kind, const AttentionShape& shape) {
  if (kind == AttentionKind::kFuxi) return 0;
  return cuda::attention_pair_bias_bytes(params_of<HstuParams>(shape));
}

void make_hopper_plan(Cuda cuda, const AttentionBatch& batch, const AttentionPlan& plan) {
  const auto filled = [&](auto params) {
    params.offsets = batch.offsets.data;
    params.key_times = batch.key_times.data;
    params.query_times = batch.query_times.data;
    params.workspace = plan.memory;
    params.workspace_bytes = plan.bytes;
    params.stream = cuda.stream;
    return params;
  };
  if (plan.kind == AttentionKind::kHstu) {
    cuda::plan_attention(filled(params_of<HstuParams>(plan.shape)));
  } else {
    cuda::plan_fuxi(filled(params_of<FuxiParams>(plan.shape)));
  }
}

template <class T>
bool hopper_attention(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                      Rows<T> out) {
  if (!takes(kind, problem)) return false;
  if (!aligned(out)) {
    // The backward call, which does not see `out`, would read what nobody wrote.
    TGR_CHECK(problem.kept.empty(),
              "attention: `kept` needs `out` aligned to 16 bytes, rows too; leave `kept` out, here "
              "and in the backward call");
    return false;
  }
  WorkspaceScope scratch(cuda.workspace);
  const auto filled = [&](auto params) {
    params.out = out.data;
    params.out_stride = out.stride;
    return params;
  };
  if (kind == AttentionKind::kHstu) {
    cuda::attention_forward(filled(params_of<HstuParams>(cuda, kind, problem, false, scratch)));
  } else {
    cuda::fuxi_forward(filled(params_of<FuxiParams>(cuda, kind, problem, false, scratch)));
  }
  return true;
}

template <class T>
bool hopper_attention_backward(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                               Rows<const T> dout, const AttentionGradients<T>& gradients) {
  if (!takes(kind, problem) || !aligned(dout) || !aligned(gradients.dq) || !aligned(gradients.dk) ||
      !aligned(gradients.dv) || !aligned(gradients.q_before)) {
    return false;
  }
  WorkspaceScope scratch(cuda.workspace);
  const auto filled = [&](auto params) {
    params.dout = dout.data;
    params.dout_stride = dout.stride;
    params.dq = gradients.dq.data;
    params.dk = gradients.dk.data;
    params.dv = gradients.dv.data;
    params.dq_stride = gradients.dq.stride;
    params.dk_stride = gradients.dk.stride;
    params.dv_stride = gradients.dv.stride;
    if constexpr (std::is_same_v<T, bf16>) {
      params.dposition = gradients.dbias.position.data;
      params.dtime = gradients.dbias.time.data;
    }
    if constexpr (std::is_same_v<decltype(params), HstuParams>) {
      params.q_before = gradients.q_before.data;
      params.q_before_stride = gradients.q_before.stride;
    }
    return params;
  };
  if (kind == AttentionKind::kHstu) {
    cuda::attention_backward(filled(params_of<HstuParams>(cuda, kind, problem, true, scratch)));
  } else {
    cuda::fuxi_backward(filled(params_of<FuxiParams>(cuda, kind, problem, true, scratch)));
  }
  return true;
}

#define TGR_INSTANTIATE(T)                                                                     \
  template bool hopper_serves<T>(AttentionKind, const AttentionShape&);                        \
  template bool hopper_attention<T>(Cuda, AttentionKind, const AttentionProblem<T>&, Rows<T>); \
  template bool hopper_attention_backward<T>(Cuda, AttentionKind, const AttentionProblem<T>&,  \
                                             Rows<const T>, const AttentionGradients<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
