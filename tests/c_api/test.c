/* The C door from C: every message for bad arguments, and, where there is a GPU, answers against
 * double. */
#include "turbogr/c_api/c_api.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "FAILED: %s (last error: %s)\n", what, tgr_last_error());
  ++failures;
}

/* The call fails and its message has `part` in it. */
static void expect_message(int status, const char* part) {
  if (status == 1 && strstr(tgr_last_error(), part) != NULL) return;
  fprintf(stderr, "FAILED: status %d, message '%s', wanted '%s'\n", status, tgr_last_error(), part);
  ++failures;
}

/* Valid in every respect; host pointers stand for device memory that is never reached. */
static tgr_attention example(void) {
  static int32_t offsets[2] = {0, 4};
  static double memory[64];
  tgr_attention a;
  memset(&a, 0, sizeof a);
  a.struct_size = sizeof a;
  a.dtype = TGR_F32;
  a.tokens = 4;
  a.batch = 1;
  a.heads = 2;
  a.query_width = 3;
  a.value_width = 3;
  a.offsets = offsets;
  a.alpha = 1;
  a.norm_length = 4;
  a.causal = 1;
  a.q = a.k = a.v = a.out = memory;
  a.q_stride = a.k_stride = a.v_stride = a.out_stride = 6;
  a.dout = a.dq = a.dk = a.dv = memory;
  a.dout_stride = a.dq_stride = a.dk_stride = a.dv_stride = 6;
  return a;
}

#define REFUSED(change, part)                                       \
  do {                                                              \
    tgr_attention a = example();                                    \
    change;                                                         \
    expect_message(tgr_attention_forward(&a, NULL, 0, NULL), part); \
  } while (0)
#define BACKWARD_REFUSED(change, part)                               \
  do {                                                               \
    tgr_attention a = example();                                     \
    change;                                                          \
    expect_message(tgr_attention_backward(&a, NULL, 0, NULL), part); \
  } while (0)

/* A program built with a newer header (old_client.c is one built with an older): zeros that this
 * library does not know are harmless, anything else is refused. */
static void test_newer_header(void) {
  const tgr_attention now = example();
  tgr_attention_backward(&now, NULL, 0, NULL);
  char message[512];
  snprintf(message, sizeof message, "%s", tgr_last_error());
  struct {
    tgr_attention known;
    int64_t added;
  } newer;
  memset(&newer, 0, sizeof newer);
  newer.known = now;
  newer.known.struct_size = sizeof newer;
  expect_message(tgr_attention_backward(&newer.known, NULL, 0, NULL), message);
  newer.added = 1;
  expect_message(tgr_attention_backward(&newer.known, NULL, 0, NULL), "belongs to a newer header");
}

static void test_bad_arguments(void) {
  size_t bytes = 0;
  static int32_t targets[1] = {1};
  static float table[129];
  expect_message(tgr_attention_forward(NULL, NULL, 0, NULL), "the description is NULL");
  REFUSED(a.struct_size = 8, "struct_size is 8");
  REFUSED(a.dtype = (tgr_dtype)7, "dtype is 7");
  REFUSED(a.tokens = -1, "-1 tokens");
  REFUSED(a.tokens = (int64_t)1 << 31, "tokens; wanted 0 to 2^31 - 1");
  REFUSED(a.batch = 0, "0 sequences for 4 tokens");
  REFUSED(a.heads = 0, "0 heads; wanted 1 or more");
  REFUSED(a.query_width = 257, "a head of q is 257 wide; wanted 1 to 256");
  REFUSED(a.value_width = 0, "a head of v is 0 wide; wanted 1 to 256");
  REFUSED(a.alpha = NAN, "alpha is nan");
  REFUSED(a.norm_length = 0, "norm_length is 0");
  REFUSED(a.causal = 2, "causal is 2");
  REFUSED(a.window = -1, "window is -1");
  REFUSED(a.causal = 0; a.window = 3, "a window or targets without causal");
  REFUSED(a.causal = 0; a.num_targets = targets, "a window or targets without causal");
  REFUSED(a.position = table, "a position table with position_length 0");
  REFUSED(a.time = table, "give one of each a token");
  REFUSED(a.offsets = NULL, "offsets are NULL; 1 sequences need 2");
  REFUSED(a.q = NULL, "q has no memory");
  REFUSED(a.k_stride = 5, "k has a row stride of 5 for 6 columns");
  REFUSED(a.v_stride = 0, "v has a row stride of 0 for 6 columns");
  REFUSED(a.out = NULL, "out has no memory");
  BACKWARD_REFUSED(a.dout = NULL, "dout has no memory");
  BACKWARD_REFUSED(a.dq_stride = 1, "dq has a row stride of 1");
  BACKWARD_REFUSED(a.dk = NULL, "dk has no memory");
  BACKWARD_REFUSED(a.dv = NULL, "dv has no memory");
  BACKWARD_REFUSED(a.dposition = table, "dposition without a position table");
  BACKWARD_REFUSED(a.dtime = table, "dtime without a time table");
  {
    tgr_attention a = example();
    expect_message(tgr_attention_forward_bytes(&a, NULL), "nowhere to put the number of bytes");
    a.heads = -1;
    expect_message(tgr_attention_backward_bytes(&a, &bytes), "-1 heads");
  }
  expect(strlen(tgr_version()) > 0, "there is a version");
}

#if TGR_WITH_CUDA
#include <cuda_runtime_api.h>

static void* on_gpu(const void* host, size_t bytes) {
  void* data = NULL;
  expect(cudaMalloc(&data, bytes) == cudaSuccess, "cudaMalloc");
  expect(cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "copy to the GPU");
  return data;
}

enum { kTokens = 150, kBatch = 3, kHeads = 2, kWidth = 5, kStride = 11, kLongest = 100 };
static const int32_t kOffsets[kBatch + 1] = {0, 100, 100, 150};

static int bucket_of(int64_t gap) {
  const double d = gap < 0 ? -(double)gap : (double)gap;
  const int bucket = (int)(log(d < 1 ? 1 : d) / 0.301);
  return bucket > 128 ? 128 : bucket;
}

/* out and every gradient by the formulas, in double; causal, targets or everything. */
static void reference(const tgr_attention* a, const int32_t* targets, const double* q,
                      const double* k, const double* v, const double* dout, const double* position,
                      const double* time, const int64_t* key_times, const int64_t* query_times,
                      double* out, double* dq, double* dk, double* dv, double* dposition,
                      double* dtime) {
  for (int b = 0; b < kBatch; ++b) {
    const int end = kOffsets[b + 1];
    const int history_end = end - (targets != NULL ? targets[b] : 0);
    for (int i = kOffsets[b]; i < end; ++i) {
      for (int j = kOffsets[b]; j < end; ++j) {
        int seen =
            j <= i && (a->window == 0 || j >= (i < history_end ? i : history_end) - a->window);
        if (j >= history_end) seen = i == j;
        if (a->causal == 0) seen = 1;
        if (!seen) continue;
        const int at = kLongest - 1 + j - i;
        const int bucket = bucket_of(query_times[i] - key_times[j]);
        for (int h = 0; h < kHeads; ++h) {
          const int qi = i * kStride + h * kWidth;
          const int kj = j * kStride + h * kWidth;
          double dot = 0;
          double dweight = 0;
          for (int c = 0; c < kWidth; ++c) {
            dot += q[qi + c] * k[kj + c];
            dweight += dout[qi + c] * v[kj + c];
          }
          const double x = a->alpha * dot + position[at] + time[bucket];
          const double s = 1 / (1 + exp(-x));
          const double dscore = dweight / a->norm_length * s * (1 + x * (1 - s));
          for (int c = 0; c < kWidth; ++c) {
            out[qi + c] += x * s / a->norm_length * v[kj + c];
            dv[kj + c] += x * s / a->norm_length * dout[qi + c];
            dq[qi + c] += a->alpha * dscore * k[kj + c];
            dk[kj + c] += a->alpha * dscore * q[qi + c];
          }
          dposition[at] += dscore;
          dtime[bucket] += dscore;
        }
      }
    }
  }
}

static void expect_close(const void* gpu, const double* wanted, size_t count, const char* what) {
  double got[kTokens * kStride];
  double worst = 0;
  expect(cudaMemcpy(got, gpu, count * sizeof(double), cudaMemcpyDeviceToHost) == cudaSuccess,
         "copy from the GPU");
  for (size_t i = 0; i < count; ++i) {
    const double error = fabs(got[i] - wanted[i]);
    if (!(error <= worst)) worst = error;
  }
  if (!(worst < 1e-11)) {
    fprintf(stderr, "FAILED: %s is off by %g\n", what, worst);
    ++failures;
  }
}

static void test_answers(int causal, int64_t window, int with_targets) {
  enum { kSize = kTokens * kStride, kPositions = 2 * kLongest - 1 };
  static double q[kSize], k[kSize], v[kSize], dout[kSize], zeros[kSize];
  static double out[kSize], dq[kSize], dk[kSize], dv[kSize], dposition[kPositions], dtime[129];
  static double position[kPositions], time[129];
  static int64_t key_times[kTokens], query_times[kTokens];
  static const int32_t targets[kBatch] = {4, 0, 2};
  unsigned state = 1;
  double* const random[] = {q, k, v, dout};
  for (int m = 0; m < 4; ++m) {
    for (int i = 0; i < kSize; ++i) {
      state = state * 1664525u + 1013904223u;
      random[m][i] = (double)state / 4294967296.0 - 0.5;
    }
  }
  for (int i = 0; i < kPositions; ++i) position[i] = 0.1 * sin(i);
  for (int i = 0; i < 129; ++i) time[i] = 0.1 * cos(i);
  for (int i = 0; i < kTokens; ++i) {
    key_times[i] = 1000 + 37 * i * i;
    query_times[i] = 1000 + 37 * (i + 1) * (i + 1);
  }
  double* const results[] = {out, dq, dk, dv};
  for (int m = 0; m < 4; ++m) memset(results[m], 0, sizeof out);
  memset(dposition, 0, sizeof dposition);
  memset(dtime, 0, sizeof dtime);

  tgr_attention a;
  memset(&a, 0, sizeof a);
  a.struct_size = sizeof a;
  a.dtype = TGR_F64;
  a.tokens = kTokens;
  a.batch = kBatch;
  a.heads = kHeads;
  a.query_width = a.value_width = kWidth;
  a.alpha = 0.7;
  a.norm_length = 50;
  a.causal = causal;
  a.window = window;
  a.position_length = kLongest;
  a.q_stride = a.k_stride = a.v_stride = a.out_stride = kStride;
  a.dout_stride = a.dq_stride = a.dk_stride = a.dv_stride = kStride;
  a.offsets = on_gpu(kOffsets, sizeof kOffsets);
  if (with_targets) a.num_targets = on_gpu(targets, sizeof targets);
  a.position = on_gpu(position, sizeof position);
  a.time = on_gpu(time, sizeof time);
  a.key_times = on_gpu(key_times, sizeof key_times);
  a.query_times = on_gpu(query_times, sizeof query_times);
  a.q = on_gpu(q, sizeof q);
  a.k = on_gpu(k, sizeof k);
  a.v = on_gpu(v, sizeof v);
  a.dout = on_gpu(dout, sizeof dout);
  a.out = on_gpu(zeros, sizeof zeros);
  a.dq = on_gpu(zeros, sizeof zeros);
  a.dk = on_gpu(zeros, sizeof zeros);
  a.dv = on_gpu(zeros, sizeof zeros);
  a.dposition = on_gpu(zeros, sizeof dposition);
  a.dtime = on_gpu(zeros, sizeof dtime);

  cudaStream_t stream;
  size_t forward = 0;
  size_t backward = 0;
  void* workspace = NULL;
  expect(cudaStreamCreate(&stream) == cudaSuccess, "cudaStreamCreate");
  expect(tgr_attention_forward_bytes(&a, &forward) == 0, "forward bytes");
  expect(tgr_attention_backward_bytes(&a, &backward) == 0, "backward bytes");
  expect_message(tgr_attention_backward(&a, NULL, 0, stream),
                 "a workspace of 0 bytes; this call needs");
  expect(cudaMalloc(&workspace, forward > backward ? forward : backward) == cudaSuccess,
         "cudaMalloc");
  expect_message(tgr_attention_backward(&a, (char*)workspace + 8, backward, stream),
                 "must begin at a multiple of 256 bytes");
  expect(tgr_attention_forward(&a, workspace, forward, stream) == 0, "forward");
  expect(tgr_attention_backward(&a, workspace, backward, stream) == 0, "backward");
  expect(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");

  reference(&a, with_targets ? targets : NULL, q, k, v, dout, position, time, key_times,
            query_times, out, dq, dk, dv, dposition, dtime);
  expect_close(a.out, out, kSize, "out");
  expect_close(a.dq, dq, kSize, "dq");
  expect_close(a.dk, dk, kSize, "dk");
  expect_close(a.dv, dv, kSize, "dv");
  expect_close(a.dposition, dposition, kPositions, "dposition");
  expect_close(a.dtime, dtime, 129, "dtime");
}
#endif

int main(void) {
  test_bad_arguments();
  test_newer_header();
#if TGR_WITH_CUDA
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    test_answers(1, 0, 0);
    test_answers(1, 20, 0);
    test_answers(1, 20, 1);
    test_answers(0, 0, 0);
    printf("answers on the GPU: checked\n");
  } else {
    tgr_attention a = example();
    expect_message(tgr_attention_forward(&a, NULL, 0, NULL), "no usable NVIDIA GPU");
    printf("answers on the GPU: SKIPPED, no NVIDIA GPU on this machine\n");
  }
#else
  tgr_attention a = example();
  expect_message(tgr_attention_forward(&a, NULL, 0, NULL), "built without CUDA");
  printf("answers on the GPU: SKIPPED, built without CUDA\n");
#endif
  if (failures == 0) printf("c_api: all passed\n");
  return failures == 0 ? 0 : 1;
}
