// What a plain implementation on matrix units gives in bf16: the weights and their gradients are
// rounded to bf16 before they are multiplied with rows, and summed over heads in bf16 before they
// go to the tables; all other sums are kept in f32.
#pragma once

#include "tests/support/attention_case.h"

namespace turbogr::test {

inline float rounded(float value) { return static_cast<float>(bf16(value)); }

inline AttentionResults run_rounded_attention(const AttentionInputs<bf16>& in) {
  const AttentionCase& c = in.shape;
  const ops::AttentionProblem<bf16> p = in.problem();
  const Rows<const bf16> dout = in.dout.view<bf16, 2>();
  Tensor out(DType::kF32, {in.tokens(), in.out_width()});
  Tensor dq(DType::kF32, {in.tokens(), c.heads * c.dq});
  Tensor dk(DType::kF32, {in.tokens(), c.heads * c.dq});
  Tensor dv(DType::kF32, {in.tokens(), c.heads * c.dv});
  AttentionResults results;
  results.dposition = Tensor(DType::kF32, in.position.shape());
  results.dtime = Tensor(DType::kF32, in.time.shape());
  fill<float>(results.dposition, 0.25);
  fill<float>(results.dtime, 0.25);
  const View<float, 1> dposition = results.dposition.view<float, 1>();
  const View<float, 1> dtime = results.dtime.view<float, 1>();
  const auto row = [](Tensor& tensor, std::int64_t r, std::int64_t column) {
    return tensor.view<float, 2>().data + r * tensor.shape()[1] + column;
  };
  const auto norm = static_cast<float>(c.norm_length);
  const auto alpha = static_cast<float>(c.alpha);
  const std::int64_t out_columns = c.fuxi ? 3 * c.dv : c.dv;
  const std::int64_t latent_column = c.fuxi ? 2 * c.dv : 0;
  ops::for_each_pair(p, [&](const ops::AttentionPair& pair) {
    const float position = pair.position < 0 ? 0 : p.bias.position(pair.position);
    const float time = pair.time < 0 ? 0 : p.bias.time(pair.time);
    float head_sum = 0;
    float position_product = 0;
    float time_product = 0;
    for (int h = 0; h < c.heads; ++h) {
      const bf16* q = p.q.values.row(pair.query) + h * c.dq;
      const bf16* k = p.k.row(pair.key) + h * c.dq;
      const bf16* v = p.v.row(pair.key) + h * c.dv;
      const bf16* dy = dout.row(pair.query) + h * out_columns;
      float* y = row(out, pair.query, h * out_columns);
      float* dvalue = row(dv, pair.key, h * c.dv);
      const float score = alpha * ops::reference_dot(q, k, c.dq) + (c.fuxi ? 0 : position + time);
      const float s = ops::reference_sigmoid(score);
      const float weight = rounded(score * s);
      const float dweight = ops::reference_dot(dy + latent_column, v, c.dv);
      const float dscore = dweight * s * (1 + score * (1 - s));
      ops::reference_add(y + latent_column, weight / norm, v, c.dv);
      ops::reference_add(dvalue, weight / norm, dy + latent_column, c.dv);
      ops::reference_add(row(dq, pair.query, h * c.dq), alpha * rounded(dscore) / norm, k, c.dq);
      ops::reference_add(row(dk, pair.key, h * c.dq), alpha * rounded(dscore) / norm, q, c.dq);
      head_sum = rounded(head_sum + rounded(dscore));
      if (!c.fuxi) continue;
      if (pair.position >= 0) {
        ops::reference_add(y, rounded(position), v, c.dv);
        ops::reference_add(dvalue, rounded(position), dy, c.dv);
        position_product += ops::reference_dot(dy, v, c.dv);
      }
      if (pair.time >= 0) {
        ops::reference_add(y + c.dv, rounded(time), v, c.dv);
        ops::reference_add(dvalue, rounded(time), dy + c.dv, c.dv);
        time_product += ops::reference_dot(dy + c.dv, v, c.dv);
      }
    }
    if (!c.fuxi && pair.position >= 0) dposition(pair.position) += head_sum / norm;
    if (!c.fuxi && pair.time >= 0) dtime(pair.time) += head_sum / norm;
    // One product over the columns of all heads.
    if (c.fuxi && pair.position >= 0) dposition(pair.position) += rounded(position_product);
    if (c.fuxi && pair.time >= 0) dtime(pair.time) += rounded(time_product);
  });
  results.out = converted<bf16, float>(out);
  results.dq = converted<bf16, float>(dq);
  results.dk = converted<bf16, float>(dk);
  results.dv = converted<bf16, float>(dv);
  return results;
}

}  // namespace turbogr::test
