/* HSTU attention over jagged sequences for any language: raw device pointers and a stream.
 *
 *   A_ij = SiLU(alpha q_i . k_j + b_ij) / norm_length where query i sees key j, else 0; out = A V
 *   b_ij = position[S - 1 + j - i] + time[bucket(query_times[i] - key_times[j])]
 *
 * Every function returns 0 or, after an error, 1: tgr_last_error() then says what was wrong and
 * what to do. Calls only queue work on the stream; memory must stay until the stream has passed.
 * Nothing is kept between calls and nothing is allocated.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TGR_C_API __attribute__((visibility("default")))
#else
#define TGR_C_API
#endif

typedef enum tgr_dtype { TGR_BF16 = 0, TGR_F32 = 1, TGR_F64 = 2 } tgr_dtype;

/* B sequences end to end, N tokens in all. Matrices have N rows, `stride` elements apart; head h is
 * columns h * width up to (h + 1) * width. Tables and their gradients are f32 (f64 with TGR_F64).
 * Set it to zeros, then fill in what is used. */
typedef struct tgr_attention {
  size_t
      struct_size; /* sizeof(tgr_attention): programs built with an older header keep working, the
                      fields it lacks are taken as zeros; new ones are only ever added at the end */
  tgr_dtype dtype; /* of q, k, v, out, dout, dq, dk, dv */
  int64_t tokens;  /* N */
  int32_t batch;   /* B */
  int32_t heads;
  int32_t query_width;    /* of one head of q and k, 1 to 256 */
  int32_t value_width;    /* of one head of v and out, 1 to 256 */
  const int32_t* offsets; /* [B + 1] from 0 to N: sequence b is rows offsets[b] to offsets[b + 1] */
  double alpha;           /* scale of q . k */
  double norm_length;     /* above 0 */

  /* The mask: causal 1, a token sees itself and what came before; 0, every token of its sequence.
   * window w > 0: no more than w tokens back. num_targets [B] or NULL: the last tokens of each
   * sequence, which see the tokens before the targets and themselves, never another target.
   * Neither a window nor targets go with causal 0. */
  int32_t causal;
  int64_t window;
  const int32_t* num_targets;

  /* The bias; a NULL table is not used. */
  int64_t position_length;    /* S: no sequence is longer; 0: not known, which the fast kernels
                                 of a bias or a mask do not take */
  const void* position;       /* [2 S - 1] */
  const void* time;           /* [129]; needs both times */
  const int64_t* key_times;   /* [N], in any order */
  const int64_t* query_times; /* [N] */

  const void* q;
  const void* k;
  const void* v;
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;

  /* Written by forward. */
  void* out;
  int64_t out_stride;

  /* Backward: dq, dk and dv are overwritten, gradients of tables (NULL: not wanted) added to. */
  const void* dout;
  void* dq;
  void* dk;
  void* dv;
  int64_t dout_stride;
  int64_t dq_stride;
  int64_t dk_stride;
  int64_t dv_stride;
  void* dposition;
  void* dtime;
} tgr_attention;

/* Device memory that a call needs, at any address that is a multiple of 256. Depends on sizes only:
 * pointers need not be set, but for which of them are NULL. */
TGR_C_API int tgr_attention_forward_bytes(const tgr_attention* attention, size_t* bytes);
TGR_C_API int tgr_attention_backward_bytes(const tgr_attention* attention, size_t* bytes);

/* `stream` is a cudaStream_t of the current device; NULL is the default stream. */
TGR_C_API int tgr_attention_forward(const tgr_attention* attention, void* workspace,
                                    size_t workspace_bytes, void* stream);
TGR_C_API int tgr_attention_backward(const tgr_attention* attention, void* workspace,
                                     size_t workspace_bytes, void* stream);

/* What went wrong in this thread's last call that failed; never NULL. */
TGR_C_API const char* tgr_last_error(void);

TGR_C_API const char* tgr_version(void);

#ifdef __cplusplus
}
#endif
