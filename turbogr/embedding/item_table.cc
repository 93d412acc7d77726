#include "turbogr/embedding/item_table.h"

#include "turbogr/core/check.h"

namespace turbogr::embedding {

SparseOptimiser sparse_optimiser_from_name(std::string_view name) {
  if (name == "adamw") return SparseOptimiser::kAdamW;
  if (name == "adagrad") return SparseOptimiser::kAdaGrad;
  TGR_CHECK(name == "sgd", "unknown item-table optimiser '", name, "'; use adamw, adagrad or sgd");
  return SparseOptimiser::kSgd;
}

ItemTable::ItemTable(std::int64_t rows, std::int64_t width, SparseOptimiser optimiser,
                     Device device, DType dtype)
    : optimiser_(optimiser), weights_(dtype, {rows, width}, device) {
  TGR_CHECK(dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16, "a table in ",
            name_of(dtype), "; use f32, bf16 or f16");
  if (optimiser == SparseOptimiser::kAdamW) {
    first_moment_ = Tensor(DType::kF32, {rows, width}, device);
    second_moment_ = Tensor(DType::kF32, {rows, width}, device);
  } else if (optimiser == SparseOptimiser::kAdaGrad) {
    // A number a row: a GPU keeps those of a table in host memory itself.
    second_moment_ =
        Tensor(DType::kF32, {rows}, device == Device::kPinned ? Device::kCuda : device);
  }
}

void ItemTable::initialise(const Context& ctx, std::uint64_t seed, ops::RowStart start) {
  with_weights(weights_, [&]<class Weight>(View<Weight, 2> weights) {
    ops::random_rows<Weight>(ctx, weights, /*first_row=*/0, seed, start);
  });
}

ops::TableRows ItemTable::state() {
  ops::TableRows table = {.keys = keys_};
  if (dtype() == DType::kBf16) {
    table.weight_bf16 = weights_.view<bf16, 2>();
  } else if (dtype() == DType::kF16) {
    table.weight_f16 = weights_.view<f16, 2>();
  } else {
    table.weight = weights_.view<float, 2>();
  }
  if (optimiser_ == SparseOptimiser::kAdamW) {
    table.first_moment = first_moment_.view<float, 2>();
    table.second_moment = second_moment_.view<float, 2>();
  } else if (optimiser_ == SparseOptimiser::kAdaGrad) {
    table.second_moment = {second_moment_.view<float, 1>().data, {rows(), 1}};
  }
  return table;
}

void ItemTable::update(const Context& ctx, View<const std::int64_t, 1> ids,
                       Rows<const float> gradient, const AdamWSettings& settings,
                       const ops::StepScale* scale) {
  ops::update_rows(ctx, optimiser_, state(), ids, gradient, settings, scale);
}

}  // namespace turbogr::embedding
