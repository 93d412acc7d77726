#include "turbogr/embedding/item_table.h"

#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/embedding/initial_row.h"
#include "turbogr/ops/adamw_coefficients.h"
#include "turbogr/ops/update_simd.h"

namespace turbogr::embedding {
namespace {

constexpr std::int64_t kRowsAPiece = 64;

}  // namespace

SparseOptimiser sparse_optimiser_from_name(std::string_view name) {
  if (name == "adamw") return SparseOptimiser::kAdamW;
  if (name == "adagrad") return SparseOptimiser::kRowAdaGrad;
  TGR_CHECK(name == "sgd", "unknown item-table optimiser '", name, "'; use adamw, adagrad or sgd");
  return SparseOptimiser::kSgd;
}

ItemTable::ItemTable(std::int64_t rows, std::int64_t width, SparseOptimiser optimiser)
    : optimiser_(optimiser), weights_(DType::kF32, {rows, width}) {
  if (optimiser == SparseOptimiser::kAdamW) {
    first_moment_ = Tensor(DType::kF32, {rows, width});
    second_moment_ = Tensor(DType::kF32, {rows, width});
  } else if (optimiser == SparseOptimiser::kRowAdaGrad) {
    second_moment_ = Tensor(DType::kF32, {rows});
  }
}

void ItemTable::initialise(const Context& ctx, std::uint64_t seed, double scale) {
  initialise_from(ctx, 0, seed, scale);
}

void ItemTable::initialise_from(const Context& ctx, std::int64_t first_row, std::uint64_t seed,
                                double scale) {
  const View<float, 2> weights = weights_.view<float, 2>();
  parallel_ranges(ctx.pool(), rows() - first_row, kRowsAPiece,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
                      write_initial_row(seed, row, scale, width(), &weights(row, 0));
                    }
                  });
}

void ItemTable::update(const Context& ctx, View<const std::int64_t, 1> ids,
                       Rows<const float> gradient, const SparseUpdateOptions& options) {
  TGR_CHECK(gradient.rows == ids.shape[0] && gradient.cols == width(),
            "item table update: gradient is [", gradient.rows, ", ", gradient.cols, "]; wanted [",
            ids.shape[0], ", ", width(), "]");
  TGR_CHECK(options.step >= 1, "item table update: step is ", options.step, "; it counts from 1");
  const AdamWCoefficients adamw = adamw_coefficients(
      {options.rate, options.beta1, options.beta2, options.epsilon, options.decay,
       static_cast<double>(options.step), options.gradient_scale});
  const auto keep = static_cast<float>(1 - options.rate * options.decay);
  const UpdateTable& table = update_table(ctx.simd());
  float* weights = reinterpret_cast<float*>(weights_.data());
  float* first = reinterpret_cast<float*>(first_moment_.data());
  float* second = reinterpret_cast<float*>(second_moment_.data());

  parallel_ranges(
      ctx.pool(), ids.shape[0], kRowsAPiece, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t id = ids(i);
          TGR_CHECK(id >= 0 && id < rows(), "item table update: id ", id, " at position ", i,
                    "; the table has ", rows(), " rows");
          const float* g = gradient.row(i);
          float* w = weights + id * width();
          switch (optimiser_) {
            case SparseOptimiser::kAdamW:
              table.adamw(adamw, g, width(), w, first + id * width(), second + id * width());
              break;
            case SparseOptimiser::kRowAdaGrad: {
              const double scale = options.gradient_scale;
              second[id] += static_cast<float>(scale * scale * table.squared_sum(g, width()) /
                                               static_cast<double>(width()));
              const double size = options.rate * scale / std::sqrt(second[id] + options.epsilon);
              table.descend(keep, static_cast<float>(size), g, width(), w);
              break;
            }
            case SparseOptimiser::kSgd:
              table.descend(keep, static_cast<float>(options.rate * options.gradient_scale), g,
                            width(), w);
              break;
          }
        }
      });
}

}  // namespace turbogr::embedding
