// Checks of hstu_attention.h and fuxi_attention.h. Each throws with what was found and what to do.
#pragma once

#include "turbogr/ops/attention/attention_types.h"
#include "turbogr/ops/attention/time_bucket.h"
#include "turbogr/ops/checks.h"

namespace turbogr::ops {

void check_attention_scalars(const char* op, int heads, double alpha, double norm_length);
void check_head_width(const char* op, const char* name, std::int64_t width, int heads);
// What lies in a GPU's memory is not looked at: whoever made the batch has checked it.
void check_attention_offsets(const char* op, Device device, Offsets offsets, std::int64_t tokens);
void check_attention_mask(const char* op, Device device, const AttentionMask& mask,
                          Offsets offsets);
void check_position_size(const char* op, Device device, std::int64_t size,
                         const AttentionMask& mask, Offsets offsets);

template <class T>
void check_attention_inputs(const char* op, Device device, Jagged<const T> q, Rows<const T> k,
                            Rows<const T> v, const AttentionBias<T>& bias, int heads, double alpha,
                            double norm_length, const AttentionMask& mask) {
  check_attention_scalars(op, heads, alpha, norm_length);
  const std::int64_t tokens = q.tokens();
  check_rows(op, "q", q.values, tokens, q.width());
  check_attention_offsets(op, device, q.offsets, tokens);
  check_head_width(op, "q", q.width(), heads);
  check_head_width(op, "v", v.cols, heads);
  check_rows(op, "k", k, tokens, q.width());
  check_rows(op, "v", v, tokens, v.cols);
  check_attention_mask(op, device, mask, q.offsets);
  if (bias.position.shape[0] != 0) {
    check_position_size(op, device, bias.position.shape[0], mask, q.offsets);
    check_vector(op, "the position table", bias.position, bias.position.shape[0]);
  }
  if (bias.time.shape[0] != 0) {
    check_vector(op, "the time table", bias.time, kTimeBuckets);
    TGR_CHECK(bias.key_times.shape[0] == tokens && bias.query_times.shape[0] == tokens, op,
              ": a time table with ", bias.key_times.shape[0], " key times and ",
              bias.query_times.shape[0], " query times for ", tokens,
              " tokens; give one of each a token, or no time table");
    check_vector(op, "key_times", bias.key_times, tokens);
    check_vector(op, "query_times", bias.query_times, tokens);
  }
}

template <class T>
void check_attention_gradients(const char* op, Jagged<const T> q, Rows<const T> v,
                               const AttentionBias<T>& bias, Rows<T> dq, Rows<T> dk, Rows<T> dv,
                               const AttentionBiasGradient<T>& dbias) {
  check_rows(op, "dq", dq, q.tokens(), q.width());
  check_rows(op, "dk", dk, q.tokens(), q.width());
  check_rows(op, "dv", dv, q.tokens(), v.cols);
  if (dbias.position.shape[0] != 0) {
    check_vector(op, "the position table's gradient", dbias.position, bias.position.shape[0]);
  }
  if (dbias.time.shape[0] != 0) {
    check_vector(op, "the time table's gradient", dbias.time, bias.time.shape[0]);
  }
}

}  // namespace turbogr::ops
