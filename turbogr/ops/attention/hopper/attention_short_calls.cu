#include "turbogr/ops/attention/hopper/attention_short.cuh"
#include "turbogr/ops/attention/hopper/attention_short_calls.cuh"
#include "turbogr/ops/attention/hopper/head_rows.cuh"

namespace turbogr::cuda {
namespace {

HeadRows head_rows(const char* name, const void* data, std::int64_t stride, int width,
                   std::int64_t head_stride = 0) {
  check_head_rows("attention", name, data, stride, width);
  return {static_cast<const __nv_bfloat16*>(data), stride, head_stride != 0 ? head_stride : width};
}
OutputRows output_rows(const char* name, void* data, std::int64_t stride, int width,
                       std::int64_t head_stride = 0) {
  check_head_rows("attention", name, data, stride, width);
  return {static_cast<__nv_bfloat16*>(data), stride, head_stride != 0 ? head_stride : width};
}

ShortArgs short_args(const AttentionParams& p, const AttentionLayout& layout) {
  ShortArgs args{};
  args.packs = at<AttentionPack>(p, layout.packs);
  args.num_packs = at<int>(p, layout.counters) + kNumPacks;
  args.offsets = p.offsets;
  args.bias = bias_args(p, layout);
  args.half_alpha = static_cast<float>(0.5 * p.alpha);
  args.output_scale = static_cast<float>(1 / p.norm_length);
  args.score_scale = static_cast<float>(0.5 * p.alpha / p.norm_length);
  args.heads = p.heads;
  args.query_width = p.query_width;
  args.value_width = p.value_width;
  args.q = head_rows("q", p.q, p.q_stride, p.query_width);
  args.k = head_rows("k", p.k, p.k_stride, p.query_width);
  args.v = head_rows("v", p.v, p.v_stride, p.value_width);
  return args;
}

}  // namespace

void short_forward(const AttentionParams& p, const AttentionLayout& layout, int width) {
  ShortArgs args = short_args(p, layout);
  args.out = output_rows("out", p.out, p.out_stride, p.value_width, p.out_head_stride);
  launch_short_forward(args, width, static_cast<cudaStream_t>(p.stream));
}

void short_backward(const AttentionParams& p, const AttentionLayout& layout, int width) {
  ShortArgs args = short_args(p, layout);
  args.dout = head_rows("dout", p.dout, p.dout_stride, p.value_width, p.dout_head_stride);
  args.dq = output_rows("dq", p.dq, p.dq_stride, p.query_width);
  args.dk = output_rows("dk", p.dk, p.dk_stride, p.query_width);
  args.dv = output_rows("dv", p.dv, p.dv_stride, p.value_width);
  if (p.q_before != nullptr) {
    args.q_before = head_rows("q before SiLU", p.q_before, p.q_before_stride, p.query_width);
  }
  launch_short_backward(args, width, static_cast<cudaStream_t>(p.stream));
}

}  // namespace turbogr::cuda
