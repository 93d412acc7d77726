/* A program compiled with an older header, linked to today's library: each field it knows is read
 * where it put it, those it lacks are zeros, and not a byte behind its description is read. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/c_api/old_c_api.h"

static int failures = 0;

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
  a.query_width = a.value_width = 3;
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

int main(void) {
  /* The description ends where a page begins that nobody may read. */
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* const pages =
      mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) return 1;
  tgr_attention* const a = (tgr_attention*)(pages + page - sizeof(tgr_attention));

  /* Backward reads everything; what is wrong is found in fields from the first to the last. */
#define REFUSED(change, part)                                       \
  do {                                                              \
    *a = example();                                                 \
    change;                                                         \
    expect_message(tgr_attention_backward(a, NULL, 0, NULL), part); \
  } while (0)
  REFUSED(a->tokens = -1, "-1 tokens");
  REFUSED(a->heads = 0, "0 heads");
  REFUSED(a->norm_length = 0, "norm_length is 0");
  REFUSED(a->position = a->q, "a position table with position_length 0");
  REFUSED(a->k_stride = 5, "k has a row stride of 5");
  REFUSED(a->dv = NULL, "dv has no memory");
  REFUSED(a->dv_stride = 4, "dv has a row stride of 4");
#undef REFUSED

  /* And nothing is wrong otherwise: what remains is that there is no GPU, or no workspace. */
  *a = example();
  size_t bytes = 0;
  if (tgr_attention_backward_bytes(a, &bytes) == 0) {
    expect_message(tgr_attention_backward(a, NULL, 0, NULL), "a workspace of 0 bytes");
  } else {
    const int built_without = strstr(tgr_last_error(), "built without CUDA") != NULL;
    const char* const part = built_without ? "built without CUDA" : "no usable NVIDIA GPU";
    expect_message(1, part);
    expect_message(tgr_attention_backward(a, NULL, 0, NULL), part);
    expect_message(tgr_attention_forward_bytes(a, &bytes), part);
    expect_message(tgr_attention_forward(a, NULL, 0, NULL), part);
  }
  munmap(pages, 2 * page);
  if (failures == 0) printf("c_api, older header: all passed with %s\n", tgr_version());
  return failures == 0 ? 0 : 1;
}
