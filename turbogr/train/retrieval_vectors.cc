#include "turbogr/train/retrieval_vectors.h"

#include <type_traits>

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::train {
namespace {

constexpr double kShortest = 1e-6;  // of a vector that is scaled to length one

}  // namespace

View<const std::int64_t, 1> on_context(const Context& ctx, const std::vector<std::int64_t>& values,
                                       Tensor& memory) {
  if (ctx.device() == Device::kCpu) return data::view_of(values);
  const auto count = static_cast<std::int64_t>(values.size());
  if (memory.size() < count) memory = Tensor(DType::kI64, {count}, ctx.device());
  if (count > 0) copy_bytes(ctx, memory.data(), values.data(), values.size() * sizeof(values[0]));
  return {memory.view<std::int64_t, 1>().data, {count}};
}

template <class T>
ItemVectors<T>::ItemVectors(const Context& ctx, const embedding::ItemTable& table,
                            const std::vector<std::int64_t>& candidates) {
  const View<const float, 2> from = table.weights();
  const std::int64_t rows =
      candidates.empty() ? table.rows() : static_cast<std::int64_t>(candidates.size());
  if (!candidates.empty()) {
    copied_ = Tensor(dtype_of<T>(), {rows, table.width()}, ctx.device());
    Tensor ids;
    ops::gather_rows<float, T>(ctx, from, on_context(ctx, candidates, ids), copied_.view<T, 2>());
    synchronize(ctx);  // the ids go
    rows_ = copied_.view<T, 2>();
  } else if constexpr (std::is_same_v<T, float>) {
    rows_ = from;
  } else {
    copied_ = Tensor(dtype_of<T>(), {rows, table.width()}, ctx.device());
    const View<T, 2> out = copied_.view<T, 2>();
    ops::convert_values<T, float>(ctx, {from.data, {from.size()}}, {out.data, {out.size()}});
    rows_ = out;
  }
  inverse_norms_ = Tensor(DType::kF32, {rows}, ctx.device());
  ops::inverse_norms<T>(ctx, rows_, kShortest, inverse_norms_.view<float, 1>());
}

template <class T>
void UserVectors<T>::compute(const Context& ctx, RetrievalTrainer<T>& trainer,
                             const data::Batch& batch) {
  users_ = batch.num_sequences();
  if (inverse_norms_.size() < users_) {
    vectors_ = Tensor(dtype_of<T>(), {users_, trainer.table().width()}, ctx.device());
    inverse_norms_ = Tensor(DType::kF32, {users_}, ctx.device());
  }
  const Rows<T> vectors = model::first_rows<T>(vectors_, users_);
  trainer.last_vectors(ctx, batch, vectors);
  ops::inverse_norms<T>(ctx, vectors, kShortest,
                        model::first_values<float>(inverse_norms_, users_));
}

template <class T>
Rows<const T> UserVectors<T>::rows() const {
  return model::first_rows<T>(vectors_, users_);
}

template <class T>
View<const float, 1> UserVectors<T>::inverse_norms() const {
  return model::first_values<float>(inverse_norms_, users_);
}

template class ItemVectors<float>;
template class ItemVectors<bf16>;
template class UserVectors<float>;
template class UserVectors<bf16>;

}  // namespace turbogr::train
