#include <algorithm>
#include <limits>

#include "bench/materialised_softmax_cuda.h"
#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::bench {
namespace {

using cuda::Eight;
using cuda::kColumns;

constexpr unsigned kWarps = 4;  // rows, or tokens, of a block
constexpr int kAhead = 4;       // rows on their way

struct Args {
  Rows<const bf16> query, items;
  const std::int32_t* positive;
  const std::int32_t* negatives;
  std::int64_t tokens, count, width;  // count: R + 1
  float scale, eps;
  bf16* rows;
  bf16* drows;
  float* inverse;
  float* logits;
  std::int64_t* ids;
  const float* dloss;
  float* loss;
  Rows<bf16> dquery;

  __device__ std::int32_t item(std::int64_t token, std::int64_t j) const {
    return j == 0 ? positive[token] : negatives[token * (count - 1) + j - 1];
  }
};

// A warp a row: looks it up and divides by its length.
__global__ void look_up_kernel(Args args) {
  const std::int64_t pair = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (pair >= args.tokens * args.count) return;
  const std::int64_t item = args.item(pair / args.count, pair % args.count);
  const bf16* from = args.items.row(item);
  float squares = 0;
#pragma unroll 4
  for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
    const auto x = cuda::load_vector(from + c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares += x[i] * x[i];
  }
  const float inverse = 1.0f / fmaxf(sqrtf(cuda::warp_sum(squares)), args.eps);
  if (threadIdx.x == 0) {
    args.inverse[pair] = inverse;
    args.ids[pair] = item;
  }
#pragma unroll 4
  for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
    auto x = cuda::load_vector(from + c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) x[i] *= inverse;
    cuda::store_vector(args.rows + pair * args.width + c, x);
  }
}

// A warp a token, its unit query in shared memory.
__global__ void token_kernel(Args args) {
  extern __shared__ float shared[];
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (token >= args.tokens) return;
  float* u = shared + threadIdx.y * 2 * args.width;
  float* du = u + args.width;
  const bf16* query = args.query.row(token);
  float squares = 0;
  for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
    const auto x = cuda::load_vector(query + c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares += x[i] * x[i];
  }
  const float query_inverse = 1.0f / fmaxf(sqrtf(cuda::warp_sum(squares)), args.eps);
  for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
    const auto x = cuda::load_vector(query + c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      u[c + i] = x[i] * query_inverse;
      du[c + i] = 0;
    }
  }
  __syncwarp();
  const bf16* rows = args.rows + token * args.count * args.width;
  float* logits = args.logits + token * args.count;
  const std::int32_t positive = args.positive[token];
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t first = 0; first < args.count; first += kAhead) {
    float dots[kAhead] = {};
    for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (first + a >= args.count) break;
        const auto x = cuda::load_vector(rows + (first + a) * args.width + c);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) dots[a] += x[i] * u[c + i];
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const std::int64_t j = first + a;
      const float dot = cuda::warp_sum(dots[a]);
      if (j >= args.count) break;
      const bool masked = j > 0 && args.item(token, j) == positive;
      const float logit = masked ? -std::numeric_limits<float>::infinity() : dot * args.scale;
      largest = fmaxf(largest, logit);
      if (threadIdx.x == 0) logits[j] = logit;
    }
  }
  __syncwarp();
  float sum = 0;
  for (std::int64_t j = threadIdx.x; j < args.count; j += 32) sum += __expf(logits[j] - largest);
  const float log_sum = logf(cuda::warp_sum(sum));
  const float log_sum_exp = largest + log_sum;
  const float first_logit = logits[0];
  if (threadIdx.x == 0) args.loss[token] = largest - first_logit + log_sum;
  // Of a row, g (u - e (u . e)) / |row|; of the query, the sum of g e.
  for (std::int64_t j = 0; j < args.count; ++j) {
    const float logit = logits[j];
    const bool masked = isinf(logit);
    const float p = masked   ? 0.0f
                    : j == 0 ? expm1f(logit - log_sum_exp)
                             : __expf(logit - log_sum_exp);
    const float g = args.dloss[token] * p * args.scale;
    const float cosine = masked ? 0.0f : logit / args.scale;
    const float inverse = args.inverse[token * args.count + j];
    bf16* drow = args.drows + (token * args.count + j) * args.width;
#pragma unroll 4
    for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
      const auto x = cuda::load_vector(rows + j * args.width + c);
      Eight<float> d;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        d[i] = g * inverse * (u[c + i] - x[i] * cosine);
        du[c + i] += g * x[i];
      }
      cuda::store_vector(drow + c, d);
    }
  }
  float along = 0;
  for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) along += u[c + i] * du[c + i];
  }
  along = cuda::warp_sum(along);
  for (std::int64_t c = threadIdx.x * kColumns; c < args.width; c += 32 * kColumns) {
    Eight<float> d;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) d[i] = (du[c + i] - along * u[c + i]) * query_inverse;
    cuda::store_vector(args.dquery.row(token) + c, d);
  }
}

std::int64_t pairs_of(const SoftmaxSize& size) { return size.tokens * (size.negatives + 1); }

std::size_t scratch_bytes(const Context& ctx, const SoftmaxSize& size) {
  return std::max(ops::dedup_ids_workspace_bytes(ctx, pairs_of(size)),
                  ops::sum_groups_workspace_bytes<bf16>(ctx, pairs_of(size), size.width));
}

unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(cuda::divide_up(count, kWarps));
}

}  // namespace

MaterialisedSoftmaxCuda::MaterialisedSoftmaxCuda(const Context& ctx, const SoftmaxSize& size)
    : size_(size),
      rows_(DType::kBf16, {pairs_of(size), size.width}, ctx.device()),
      drows_(DType::kBf16, {pairs_of(size), size.width}, ctx.device()),
      inverse_(DType::kF32, {pairs_of(size)}, ctx.device()),
      logits_(DType::kF32, {pairs_of(size)}, ctx.device()),
      ids_(DType::kI64, {pairs_of(size)}, ctx.device()),
      unique_(DType::kI64, {pairs_of(size)}, ctx.device()),
      offsets_(DType::kI64, {pairs_of(size) + 1}, ctx.device()),
      positions_(DType::kI32, {pairs_of(size)}, ctx.device()),
      group_(DType::kI32, {pairs_of(size)}, ctx.device()) {
  TGR_CHECK(size.width % kColumns == 0, "materialised negatives of width ", size.width,
            " on a GPU; it must be a multiple of ", kColumns);
  ctx.workspace().reserve(scratch_bytes(ctx, size));
}

std::size_t MaterialisedSoftmaxCuda::bytes(const Context& ctx, const SoftmaxSize& size) {
  const auto pairs = static_cast<std::size_t>(pairs_of(size));
  const auto width = static_cast<std::size_t>(size.width);
  return pairs * (2 * width * 2 + 2 * 4 + 3 * 8 + 2 * 4) + 8 + scratch_bytes(ctx, size);
}

void MaterialisedSoftmaxCuda::forward_backward(const Context& ctx,
                                               const ops::SampledSoftmaxInputs<bf16>& inputs,
                                               const ops::SoftmaxOptions& options,
                                               View<const float, 1> dloss, View<float, 1> loss,
                                               Rows<bf16> dquery, Rows<float> ditems) {
  Args args = {};
  args.query = inputs.query;
  args.items = inputs.items;
  args.positive = inputs.positive.data;
  args.negatives = inputs.negatives.data;
  args.tokens = size_.tokens;
  args.count = size_.negatives + 1;
  args.width = size_.width;
  args.scale = static_cast<float>(1 / options.temperature);
  args.eps = static_cast<float>(options.eps);
  args.rows = rows_.view<bf16, 2>().data;
  args.drows = drows_.view<bf16, 2>().data;
  args.inverse = inverse_.view<float, 1>().data;
  args.logits = logits_.view<float, 1>().data;
  args.ids = ids_.view<std::int64_t, 1>().data;
  args.dloss = dloss.data;
  args.loss = loss.data;
  args.dquery = dquery;
  cudaStream_t stream = cuda::stream_of(ctx.stream());
  const dim3 block(32, kWarps);
  look_up_kernel<<<blocks_of(pairs_of(size_)), block, 0, stream>>>(args);
  const auto shared = static_cast<unsigned>(kWarps * 2 * size_.width) * sizeof(float);
  token_kernel<<<blocks_of(size_.tokens), block, shared, stream>>>(args);
  cuda::check_launch("materialised softmax");
  const ops::DedupOutput groups = {
      unique_.view<std::int64_t, 1>(), offsets_.view<std::int64_t, 1>(),
      positions_.view<std::int32_t, 1>(), group_.view<std::int32_t, 1>()};
  const std::int64_t unique =
      ops::dedup_ids(ctx, std::as_const(ids_).view<std::int64_t, 1>(), groups);
  ops::scatter_add_rows<bf16>(ctx, drows_.view<bf16, 2>(), groups.first(unique), ditems);
}

}  // namespace turbogr::bench
