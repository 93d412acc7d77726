#include "bench/materialised_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/row_simd.h"

namespace turbogr::bench {
namespace {

std::int64_t pairs_of(const SoftmaxSize& size) { return size.tokens * (size.negatives + 1); }

}  // namespace

MaterialisedSoftmax::MaterialisedSoftmax(const Context& ctx, const SoftmaxSize& size)
    : size_(size),
      query_(DType::kF32, {size.tokens, size.width}),
      query_inverse_(DType::kF32, {size.tokens}),
      rows_(DType::kF32, {pairs_of(size), size.width}),
      inverse_(DType::kF32, {pairs_of(size)}),
      drows_(DType::kF32, {pairs_of(size), size.width}),
      logits_(DType::kF32, {size.tokens, size.negatives + 1}),
      ids_(DType::kI64, {pairs_of(size)}),
      unique_(DType::kI64, {pairs_of(size)}),
      offsets_(DType::kI64, {pairs_of(size) + 1}),
      positions_(DType::kI32, {pairs_of(size)}),
      group_(DType::kI32, {pairs_of(size)}) {
  ctx.workspace().reserve(ops::dedup_ids_workspace_bytes(pairs_of(size)));
}

std::size_t MaterialisedSoftmax::bytes(const SoftmaxSize& size) {
  const auto pairs = static_cast<std::size_t>(pairs_of(size));
  const auto tokens = static_cast<std::size_t>(size.tokens);
  const auto width = static_cast<std::size_t>(size.width);
  return tokens * (width + 1) * 4 + pairs * (2 * width + 2) * 4 + pairs * (3 * 8 + 2 * 4) + 8 +
         ops::dedup_ids_workspace_bytes(pairs_of(size));
}

void MaterialisedSoftmax::look_up(const Context& ctx,
                                  const ops::SampledSoftmaxInputs<float>& inputs,
                                  const ops::SoftmaxOptions& options) {
  const View<std::int64_t, 1> ids = ids_.view<std::int64_t, 1>();
  const std::int64_t per_token = size_.negatives + 1;
  parallel_ranges(ctx.pool(), size_.tokens, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      ids(i * per_token) = inputs.positive(i);
      for (std::int64_t r = 0; r < size_.negatives; ++r) {
        ids(i * per_token + 1 + r) = inputs.negatives(i, r);
      }
    }
  });
  const View<float, 2> rows = rows_.view<float, 2>();
  ops::gather_rows<float>(ctx, inputs.items, ids, rows);
  ops::l2_normalize<float>(ctx, rows, {options.eps}, rows, inverse_.view<float, 1>());
  ops::l2_normalize<float>(ctx, inputs.query, {options.eps}, query_.view<float, 2>(),
                           query_inverse_.view<float, 1>());
}

void MaterialisedSoftmax::token(SimdLevel simd, const ops::SampledSoftmaxInputs<float>& inputs,
                                const ops::SoftmaxOptions& options, std::int64_t i, float dloss,
                                float* loss, Rows<float> dquery) {
  const RowTable& table = row_table(simd);
  const std::int64_t width = size_.width;
  const std::int64_t count = size_.negatives + 1;
  const auto scale = static_cast<float>(1 / options.temperature);
  const float* u = &query_.view<float, 2>()(i, 0);
  const float* rows = &rows_.view<float, 2>()(i * count, 0);
  float* drows = &drows_.view<float, 2>()(i * count, 0);
  float* logits = &logits_.view<float, 2>()(i, 0);
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t j = 0; j < count; ++j) {
    const bool masked = j > 0 && inputs.negatives(i, j - 1) == inputs.positive(i);
    logits[j] = masked ? -std::numeric_limits<float>::infinity()
                       : scale * table.dot(u, rows + j * width, width);
    largest = std::max(largest, logits[j]);
  }
  float sum = 0;
  for (std::int64_t j = 0; j < count; ++j) sum += std::exp(logits[j] - largest);
  const float log_sum_exp = largest + std::log(sum);
  *loss = log_sum_exp - logits[0];

  // du = sum of g e; of a row, g (u - e (u . e)) / |row|.
  float* du = dquery.row(i);
  std::fill_n(du, width, 0.0f);
  for (std::int64_t j = 0; j < count; ++j) {
    const bool masked = std::isinf(logits[j]);
    const float p = masked ? 0.0f : std::exp(logits[j] - log_sum_exp) - (j == 0 ? 1.0f : 0.0f);
    const float g = dloss * p * scale;
    const float inverse = inverse_.view<float, 1>()(i * count + j);
    const float cosine = masked ? 0.0f : logits[j] / scale;
    table.axpy(g, rows + j * width, width, du);
    float* drow = drows + j * width;
    row_kernels<float>(simd).widen(u, g * inverse, width, drow);
    table.axpy(-g * inverse * cosine, rows + j * width, width, drow);
  }
  const float along = table.dot(u, du, width);
  table.axpy(-along, u, width, du);
  row_kernels<float>(simd).widen(du, query_inverse_.view<float, 1>()(i), width, du);
}

void MaterialisedSoftmax::forward_backward(const Context& ctx,
                                           const ops::SampledSoftmaxInputs<float>& inputs,
                                           const ops::SoftmaxOptions& options,
                                           View<const float, 1> dloss, View<float, 1> loss,
                                           Rows<float> dquery, Rows<float> ditems) {
  look_up(ctx, inputs, options);
  parallel_ranges(ctx.pool(), size_.tokens, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      token(ctx.simd(), inputs, options, i, dloss(i), &loss(i), dquery);
    }
  });
  const ops::DedupOutput groups = {
      unique_.view<std::int64_t, 1>(), offsets_.view<std::int64_t, 1>(),
      positions_.view<std::int32_t, 1>(), group_.view<std::int32_t, 1>()};
  const std::int64_t unique = ops::dedup_ids(ctx, ids_.view<std::int64_t, 1>(), groups);
  ops::scatter_add_rows<float>(ctx, drows_.view<float, 2>(), groups.first(unique), ditems);
}

}  // namespace turbogr::bench
