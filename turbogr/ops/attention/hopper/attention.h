// HSTU attention on the GPU over jagged sequences, bf16 in and out, f32 inside, causal:
// A_ij = SiLU(alpha q_i . k_j + b_ij) / norm_length for j <= i, out = A V. The contract is that of
// the CPU operator; here it is raw device pointers, for whoever holds some.
//
//   plan_attention(p);       // once a batch: depends on offsets, heads, widths and times only
//   attention_forward(p);    // once a layer
//   attention_backward(p);
//
// Legend: B sequences, N tokens, H heads, S longest length of the position table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turbogr::cuda {

struct AttentionParams {
  // bf16 rows of N tokens; head h is columns h * width up to (h + 1) * width. Strides in elements.
  // Pointers must be aligned to 16 bytes, widths and strides multiples of 8.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  std::int64_t out_stride = 0;
  // From one head to the next in out and dout; 0: value_width. Another one in out takes a
  // value_width of 32, 64, 128 or 256 that query_width does not exceed.
  std::int64_t out_head_stride = 0;
  std::int64_t dout_head_stride = 0;

  const std::int64_t* offsets = nullptr;  // [B + 1] on the device
  std::int64_t tokens = 0;                // N
  int batch = 0;                          // B
  int heads = 1;
  int query_width = 0;  // of one head, at most 256
  int value_width = 0;
  double alpha = 1;
  double norm_length = 1;

  // Bias tables in f32; null: not used. Times are int64 [N], in any order.
  const float* position = nullptr;   // [2 S - 1]
  std::int64_t position_length = 0;  // S
  const float* time = nullptr;       // [129]
  const std::int64_t* key_times = nullptr;
  const std::int64_t* query_times = nullptr;
  // Masks beyond causal: no more than `window` tokens back (0: any), and the last num_targets[b]
  // tokens of a sequence, which see what comes before all of them and themselves.
  std::int64_t window = 0;
  const std::int64_t* num_targets = nullptr;  // [B]; null: none
  // No sequence is longer. Wanted with a bias or a mask, for which every pair of tokens in a band
  // (attention_bands.h) takes two bytes of scratch (four in the backward call), whatever the number
  // of heads.
  std::int64_t max_length = 0;
  std::int64_t pair_room = 0;  // units of a band; 0: as attention_bands.h says
  // Where the forward call leaves the bias of all pairs and the backward call of the same inputs
  // finds it: attention_pair_bias_bytes, aligned to 256. Null, or if there are several bands: each
  // makes it, in the workspace.
  void* pair_bias = nullptr;
  bool pair_bias_ready = false;  // forward: it is there already, from the same tables and masks

  // Backward: dq, dk, dv are overwritten, the table gradients (null: not wanted) added to.
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t dout_stride = 0;
  std::int64_t dq_stride = 0;
  std::int64_t dk_stride = 0;
  std::int64_t dv_stride = 0;
  // Where q is SiLU of these rows: dq is then their gradient. Null: it is not.
  const void* q_before = nullptr;
  std::int64_t q_before_stride = 0;
  float* dposition = nullptr;
  float* dtime = nullptr;
  // Backward: the same bits from every call. Workspaces are then of another size.
  bool deterministic = false;

  // Scratch, aligned to 256 bytes. The plan lives at its beginning and must survive until the last
  // call that uses it; two calls that may overlap need two workspaces.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;
};

std::size_t attention_forward_workspace_bytes(const AttentionParams& params);
std::size_t attention_backward_workspace_bytes(const AttentionParams& params);
std::size_t attention_pair_bias_bytes(const AttentionParams& params);  // 0: several bands

// Each checks its arguments (turbogr::Error), launches on the stream and returns.
void plan_attention(const AttentionParams& params);
void attention_forward(const AttentionParams& params);
void attention_backward(const AttentionParams& params);

}  // namespace turbogr::cuda
