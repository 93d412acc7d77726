#include "turbogr/ops/attention/target_attention.h"

#include "turbogr/ops/attention/attention_checks.h"
#include "turbogr/ops/attention/target_attention_kernels.h"

namespace turbogr::ops {
namespace {

template <class T>
void check_target_attention(const Context& ctx, const char* op, const TargetSequences& s,
                            Rows<const T> q, Rows<const T> k, Rows<const T> v,
                            const TargetAttentionOptions& options) {
  check_attention_scalars(op, options.heads, options.alpha, options.norm_length);
  check_rows(op, "q", q, q.rows, q.cols);
  check_rows(op, "k", k, k.rows, q.cols);
  check_rows(op, "v", v, k.rows, v.cols);
  check_head_width(op, "q", q.cols, options.heads);
  check_head_width(op, "v", v.cols, options.heads);
  check_offsets(ctx, op, s.tokens, k.rows);
  check_offsets(ctx, op, s.targets, q.rows);
  TGR_CHECK(s.tokens.shape[0] == s.targets.shape[0], op, ": offsets of ", s.tokens.shape[0] - 1,
            " sequences and of the targets of ", s.targets.shape[0] - 1, "; they must be the same");
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t b = 0; b + 1 < s.tokens.shape[0]; ++b) {
    const TargetSequence at = target_sequence(s, b);
    TGR_CHECK(at.before >= 0, op, ": sequence ", b, " has ", at.before + at.targets, " tokens and ",
              at.targets, " targets; targets are some of the tokens");
  }
}

}  // namespace

template <class T>
void target_attention(const Context& ctx, const TargetSequences& sequences, Rows<const T> q,
                      Rows<const T> k, Rows<const T> v, const TargetAttentionOptions& options,
                      Rows<T> out) {
  const char* op = "target_attention";
  check_target_attention(ctx, op, sequences, q, k, v, options);
  check_rows(op, "out", out, q.rows, v.cols);
  const SectionScope section = section_scope(ctx, Section::kAttentionForward);
  on_device(ctx, [&](auto device) {
    kernels::target_attention<T>(device, sequences, q, k, v, options, out);
  });
}

template <class T>
void target_attention_backward(const Context& ctx, const TargetSequences& sequences,
                               Rows<const T> q, Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  const char* op = "target_attention_backward";
  check_target_attention(ctx, op, sequences, q, k, v, options);
  check_rows(op, "dout", dout, q.rows, v.cols);
  check_rows(op, "dq", dq, q.rows, q.cols);
  check_rows(op, "dk", dk, k.rows, q.cols);
  check_rows(op, "dv", dv, k.rows, v.cols);
  const SectionScope section = section_scope(ctx, Section::kAttentionBackward);
  on_device(ctx, [&](auto device) {
    kernels::target_attention_backward<T>(device, sequences, q, k, v, options, dout, dq, dk, dv);
  });
}

#define TGR_INSTANTIATE(T)                                                                       \
  template void target_attention<T>(const Context&, const TargetSequences&, Rows<const T>,       \
                                    Rows<const T>, Rows<const T>, const TargetAttentionOptions&, \
                                    Rows<T>);                                                    \
  template void target_attention_backward<T>(                                                    \
      const Context&, const TargetSequences&, Rows<const T>, Rows<const T>, Rows<const T>,       \
      const TargetAttentionOptions&, Rows<const T>, Rows<T>, Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
