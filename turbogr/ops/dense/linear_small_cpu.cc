#include <algorithm>
#include <cstring>

#include "turbogr/ops/dense/linear_small.h"
#include "turbogr/ops/dense/linear_small_simd.h"
#include "turbogr/ops/dense/small_weight.h"

namespace turbogr::ops {
namespace kernels {
namespace {

constexpr std::int64_t kMostElements = 32 * 1024;  // of a weight: 128 KB, which stay in L2
constexpr std::int64_t kPieceRows = 96;            // of a piece of x W
constexpr std::int64_t kStepRows = 128;            // of x and dz, read from L1 while dw is summed
constexpr std::int64_t kMostParts = 32;            // of dw, summed apart and added in order

std::int64_t padded_cols(std::int64_t cols) {
  return (cols + kSmallWeightPad - 1) / kSmallWeightPad * kSmallWeightPad;
}

std::int64_t part_rows(std::int64_t rows) {
  const std::int64_t steps = (rows + kStepRows - 1) / kStepRows;
  return (steps + kMostParts - 1) / kMostParts * kStepRows;
}
std::int64_t num_parts(std::int64_t rows) { return (rows + part_rows(rows) - 1) / part_rows(rows); }

SmallProducts::ConstMatrix from_row(Rows<const float> matrix, std::int64_t row) {
  if (matrix.data == nullptr) return {nullptr, 0};
  return {matrix.row(row), matrix.stride};
}
SmallProducts::Matrix to_row(Rows<float> matrix, std::int64_t row) {
  if (matrix.data == nullptr) return {nullptr, 0};
  return {matrix.row(row), matrix.stride};
}

const float* values_of(const Tensor& packed) {
  return reinterpret_cast<const float*>(packed.data());
}

// total(c) += the parts, in order.
void add_parts(Cpu cpu, View<const float, 2> parts, float* total) {
  parallel_ranges(cpu.pool, parts.shape[1], 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t part = 0; part < parts.shape[0]; ++part) {
      const float* from = &parts(part, 0);
      for (std::int64_t c = begin; c < end; ++c) total[c] += from[c];
    }
  });
}

}  // namespace

void pack_small_weight(SmallWeight& state, View<const float, 2> w) {
  const std::int64_t inputs = state.inputs, outputs = state.outputs;
  const std::int64_t forward_cols = padded_cols(outputs), transposed_cols = padded_cols(inputs);
  auto* forward = reinterpret_cast<float*>(state.forward.data());
  auto* transposed = reinterpret_cast<float*>(state.transposed.data());
  for (std::int64_t k = 0; k < inputs; ++k) {
    for (std::int64_t c = 0; c < forward_cols; ++c) {
      forward[k * forward_cols + c] = c < outputs ? w(k, c) : 0.0f;
    }
  }
  for (std::int64_t c = 0; c < outputs; ++c) {
    for (std::int64_t k = 0; k < transposed_cols; ++k) {
      transposed[c * transposed_cols + k] = k < inputs ? w(k, c) : 0.0f;
    }
  }
}

void small_linear(Cpu cpu, Rows<const float> x, const SmallWeight& weight,
                  const LinearOptions<float>& options, Rows<float> y, Rows<float> z) {
  const SmallProducts& products = small_products(cpu.simd);
  parallel_ranges(cpu.pool, x.rows, kPieceRows, [&](std::int64_t begin, std::int64_t end, int) {
    products.forward(end - begin, weight.inputs, weight.outputs, from_row(x, begin),
                     values_of(weight.forward),
                     {options.bias.data, options.activation == Activation::kSilu,
                      from_row(options.residual, begin), to_row(y, begin), to_row(z, begin)});
  });
}

// A step of rows at a time, all that is made of it while it is in cache: dz, db, dx and its part of
// dw.
void small_linear_backward(Cpu cpu, Rows<const float> x, const SmallWeight& weight,
                           Rows<const float> dy, const LinearBackwardOptions<float>& options,
                           const LinearGradients<float>& gradients) {
  const std::int64_t inputs = weight.inputs, outputs = weight.outputs;
  const SmallProducts& products = small_products(cpu.simd);
  const LinearLoops<float>& loops = linear_table(cpu.simd).f32;
  const bool with_dw = gradients.dw.data != nullptr, with_db = gradients.db.data != nullptr;
  const bool activated = options.activation != Activation::kNone;
  const std::int64_t rows_of_part = part_rows(x.rows);
  const std::int64_t parts = num_parts(x.rows);
  WorkspaceScope scope(cpu.workspace);
  const auto dz_steps = scope.take<float, 2>({cpu.pool.size(), kStepRows * outputs});
  const auto dw_parts = scope.take<float, 2>({parts, inputs * outputs});
  const auto db_parts = scope.take<float, 2>({parts, outputs});
  parallel_for(cpu.pool, parts, [&](std::int64_t part, int worker) {
    float* db = with_db ? &db_parts(part, 0) : nullptr;
    if (with_db) std::fill_n(db, outputs, 0.0f);
    const std::int64_t first = part * rows_of_part;
    const std::int64_t last = std::min(first + rows_of_part, x.rows);
    for (std::int64_t row = first; row < last; row += kStepRows) {
      const std::int64_t rows = std::min(kStepRows, last - row);
      SmallProducts::ConstMatrix dz = from_row(dy, row);
      float* made = activated ? &dz_steps(worker, 0) : nullptr;
      if (activated || with_db) {
        loops.gradient(rows, outputs, dz,
                       activated ? from_row(options.z, row) : SmallProducts::ConstMatrix{}, made,
                       db);
      }
      if (activated) dz = {made, outputs};
      if (gradients.dx.data != nullptr) {
        products.forward(rows, outputs, inputs, dz, values_of(weight.transposed),
                         {nullptr, false, {nullptr, 0}, to_row(gradients.dx, row), {nullptr, 0}});
      }
      if (with_dw) {
        products.gradient(rows, inputs, outputs, from_row(x, row), dz, row > first,
                          &dw_parts(part, 0));
      }
    }
  });
  if (with_dw) add_parts(cpu, dw_parts, gradients.dw.data);
  if (with_db) add_parts(cpu, db_parts, gradients.db.data);
}

std::size_t small_linear_backward_workspace_bytes(const SmallWeight& weight, std::int64_t rows,
                                                  int threads) {
  const std::int64_t parts = rows == 0 ? 0 : num_parts(rows);
  return workspace_bytes_of<float>(threads * kStepRows * weight.outputs) +
         workspace_bytes_of<float>(parts * weight.inputs * weight.outputs) +
         workspace_bytes_of<float>(parts * weight.outputs);
}

}  // namespace kernels

bool is_small_weight(std::int64_t inputs, std::int64_t outputs) {
  return inputs * outputs <= kernels::kMostElements;
}

std::size_t small_weight_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows * kernels::padded_cols(cols)) * sizeof(float);
}

}  // namespace turbogr::ops
