// FuXi attention on the GPU over jagged sequences, bf16 in and out, f32 inside, causal: three maps
// over the same values. For key j <= query i,
//   position  A_ij = position[S - 1 + j - i]
//   time      A_ij = time[bucket(query_times[i] - key_times[j])]
//   latent    A_ij = SiLU(alpha q_i . k_j) / norm_length
// and each head's output is [position | time | latent] side by side. The contract is that of the
// CPU operator; here it is raw device pointers, for whoever holds some.
//
//   plan_fuxi(p);        // once a batch: depends on offsets, heads, widths and times only
//   fuxi_forward(p);     // once a layer
//   fuxi_backward(p);
//
// Legend: B sequences, N tokens, H heads, S longest length of the position table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turbogr::cuda {

struct FuxiParams {
  // bf16 rows of N tokens. q, k, v: head h is columns h * width up to (h + 1) * width; out: columns
  // 3 h * value_width up to 3 (h + 1) * value_width. Strides in elements. Pointers must be aligned
  // to 16 bytes, widths and strides multiples of 8.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  std::int64_t out_stride = 0;

  const std::int64_t* offsets = nullptr;  // [B + 1] on the device
  std::int64_t tokens = 0;                // N
  int batch = 0;                          // B
  int heads = 1;
  int query_width = 0;  // of one head, at most 256
  int value_width = 0;
  double alpha = 1;
  double norm_length = 1;

  // The maps' tables in f32; the map of a null table is zero, and so is its third of out. Times are
  // int64 [N], in any order.
  const float* position = nullptr;   // [2 S - 1]
  std::int64_t position_length = 0;  // S; no sequence is longer
  const float* time = nullptr;       // [129]
  const std::int64_t* key_times = nullptr;
  const std::int64_t* query_times = nullptr;

  // Backward: dq, dk, dv are overwritten, the table gradients (null: not wanted) added to. dout is
  // laid out as out.
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t dout_stride = 0;
  std::int64_t dq_stride = 0;
  std::int64_t dk_stride = 0;
  std::int64_t dv_stride = 0;
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

std::size_t fuxi_forward_workspace_bytes(const FuxiParams& params);
std::size_t fuxi_backward_workspace_bytes(const FuxiParams& params);

// Each checks its arguments (turbogr::Error), launches on the stream and returns.
void plan_fuxi(const FuxiParams& params);
void fuxi_forward(const FuxiParams& params);
void fuxi_backward(const FuxiParams& params);

}  // namespace turbogr::cuda
