#include "turbogr/embedding/item_table.h"

#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"

namespace turbogr::embedding {
namespace {

constexpr std::int64_t kRowsAPiece = 64;
constexpr std::int64_t kRowsMadeAtOnce = 1 << 16;

}  // namespace

SparseOptimiser sparse_optimiser_from_name(std::string_view name) {
  if (name == "adamw") return SparseOptimiser::kAdamW;
  if (name == "adagrad") return SparseOptimiser::kAdaGrad;
  TGR_CHECK(name == "sgd", "unknown item-table optimiser '", name, "'; use adamw, adagrad or sgd");
  return SparseOptimiser::kSgd;
}

ItemTable::ItemTable(std::int64_t rows, std::int64_t width, SparseOptimiser optimiser,
                     Device device)
    : optimiser_(optimiser), weights_(DType::kF32, {rows, width}, device) {
  if (optimiser == SparseOptimiser::kAdamW) {
    first_moment_ = Tensor(DType::kF32, {rows, width}, device);
    second_moment_ = Tensor(DType::kF32, {rows, width}, device);
  } else if (optimiser == SparseOptimiser::kAdaGrad) {
    second_moment_ = Tensor(DType::kF32, {rows}, device);
  }
}

void ItemTable::initialise(const Context& ctx, std::uint64_t seed, double scale) {
  initialise_from(ctx, 0, seed, scale);
}

void ItemTable::initialise_from(const Context& ctx, std::int64_t first_row, std::uint64_t seed,
                                double scale) {
  // A device's rows are made on the host, some at a time.
  const bool here = weights_.device() == Device::kCpu;
  const std::int64_t at_once = here ? rows() : std::min(rows(), kRowsMadeAtOnce);
  Tensor made = here ? Tensor() : Tensor(DType::kF32, {at_once, width()}, Device::kPinned);
  for (std::int64_t first = first_row; first < rows(); first += at_once) {
    const std::int64_t count = std::min(at_once, rows() - first);
    float* target = reinterpret_cast<float*>(here ? weights_.data() : made.data());
    if (here) target += first * width();
    parallel_ranges(ctx.host().pool(), count, kRowsAPiece,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t row = begin; row < end; ++row) {
                        PhiloxStream random(seed, static_cast<std::uint64_t>(first + row));
                        for (std::int64_t c = 0; c < width(); ++c) {
                          double value = random.normal();
                          while (std::abs(value) > 2) value = random.normal();
                          target[row * width() + c] = static_cast<float>(scale * value);
                        }
                      }
                    });
    if (here) continue;
    const auto row_bytes = static_cast<std::size_t>(width()) * sizeof(float);
    copy_bytes(ctx, weights_.data() + static_cast<std::size_t>(first) * row_bytes, made.data(),
               static_cast<std::size_t>(count) * row_bytes);
    synchronize(ctx);
  }
}

void ItemTable::update(const Context& ctx, View<const std::int64_t, 1> ids,
                       Rows<const float> gradient, const AdamWSettings& settings,
                       const ops::StepScale* scale) {
  TGR_CHECK(gradient.rows == ids.shape[0] && gradient.cols == width(),
            "item table update: gradient is [", gradient.rows, ", ", gradient.cols, "]; wanted [",
            ids.shape[0], ", ", width(), "]");
  TGR_CHECK(settings.step >= 1, "item table update: step is ", settings.step, "; it counts from 1");
  ops::TableRows table = {.weight = weights_.view<float, 2>()};
  if (optimiser_ == SparseOptimiser::kAdamW) {
    table.first_moment = first_moment_.view<float, 2>();
    table.second_moment = second_moment_.view<float, 2>();
  } else if (optimiser_ == SparseOptimiser::kAdaGrad) {
    table.second_moment = {second_moment_.view<float, 1>().data, {rows(), 1}};
  }
  ops::update_rows(ctx, optimiser_, table, ids, gradient, settings, scale);
}

}  // namespace turbogr::embedding
