/* <turbogr/c_api.h> as of a version whose description ended before `dposition`: what a program was
 * compiled with that now meets today's library. It stays as it is, whatever today's header gets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum tgr_dtype { TGR_BF16 = 0, TGR_F32 = 1, TGR_F64 = 2 } tgr_dtype;

typedef struct tgr_attention {
  size_t struct_size;
  tgr_dtype dtype;
  int64_t tokens;
  int32_t batch;
  int32_t heads;
  int32_t query_width;
  int32_t value_width;
  const int32_t* offsets;
  double alpha;
  double norm_length;

  int32_t causal;
  int64_t window;
  const int32_t* num_targets;

  int64_t position_length;
  const void* position;
  const void* time;
  const int64_t* key_times;
  const int64_t* query_times;

  const void* q;
  const void* k;
  const void* v;
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;

  void* out;
  int64_t out_stride;

  const void* dout;
  void* dq;
  void* dk;
  void* dv;
  int64_t dout_stride;
  int64_t dq_stride;
  int64_t dk_stride;
  int64_t dv_stride;
} tgr_attention;

int tgr_attention_forward_bytes(const tgr_attention* attention, size_t* bytes);
int tgr_attention_backward_bytes(const tgr_attention* attention, size_t* bytes);
int tgr_attention_forward(const tgr_attention* attention, void* workspace, size_t workspace_bytes,
                          void* stream);
int tgr_attention_backward(const tgr_attention* attention, void* workspace, size_t workspace_bytes,
                           void* stream);
const char* tgr_last_error(void);
const char* tgr_version(void);
