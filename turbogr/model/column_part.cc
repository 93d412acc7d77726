#include "turbogr/model/column_part.h"

#include <type_traits>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/dense/row_arithmetic.h"

namespace turbogr::model {

template <class T>
ColumnPart<T>::ColumnPart(std::vector<Run> runs) : runs_(std::move(runs)) {
  for (const Run& run : runs_) cols_ += run.count;
}

// By adding to zeros: the one operator that walks columns of wider rows.
template <class T>
void ColumnPart<T>::copy_columns(const Context& ctx, Rows<const A> whole, Tensor& part) const {
  zero_bytes(ctx, part.data(), part.bytes());
  std::int64_t at = 0;
  for (const Run& run : runs_) {
    ops::add_rows<A>(ctx, whole.columns(run.begin, run.count),
                     Rows<A>(part.view<A, 2>()).columns(at, run.count));
    at += run.count;
  }
}

template <class T>
void ColumnPart<T>::add_columns(const Context& ctx, Rows<const A> part, Rows<A> whole) const {
  std::int64_t at = 0;
  for (const Run& run : runs_) {
    ops::add_rows<A>(ctx, part.columns(at, run.count), whole.columns(run.begin, run.count));
    at += run.count;
  }
}

template <class T>
void ColumnPart<T>::refresh(const Context& ctx, View<const A, 2> weight, View<const A, 1> bias) {
  if (!packed_) {
    const std::int64_t inputs = weight.shape[0];
    packed_.emplace(ctx, inputs, cols_);
    weight_ = Tensor(dtype_of<A>(), {inputs, cols_}, ctx.device());
    dweight_ = Tensor(dtype_of<A>(), {inputs, cols_}, ctx.device());
    if (!std::is_same_v<T, A>) rounded_ = Tensor(dtype_of<T>(), {inputs, cols_}, ctx.device());
    if (!bias.empty()) {
      bias_ = Tensor(dtype_of<A>(), {1, cols_}, ctx.device());
      dbias_ = Tensor(dtype_of<A>(), {1, cols_}, ctx.device());
    }
    ctx.workspace().reserve(ops::linear_workspace_bytes<T>(ctx, *packed_));
  }
  copy_columns(ctx, weight, weight_);
  if (!bias.empty()) copy_columns(ctx, View<const A, 2>{bias.data, {1, bias.shape[0]}}, bias_);
  if constexpr (std::is_same_v<T, A>) {
    packed_->pack(ctx, std::as_const(weight_).template view<A, 2>());
  } else {
    ops::convert_values<T, A>(ctx,
                              {std::as_const(weight_).template view<A, 2>().data, {weight_.size()}},
                              {rounded_.template view<T, 2>().data, {rounded_.size()}});
    packed_->pack(ctx, std::as_const(rounded_).template view<T, 2>());
  }
}

template <class T>
View<const Accum<T>, 1> ColumnPart<T>::bias() const {
  if (bias_.size() == 0) return {};
  return {bias_.template view<A, 2>().data, {cols_}};
}

template <class T>
View<Accum<T>, 1> ColumnPart<T>::dbias() {
  if (dbias_.size() == 0) return {};
  return {dbias_.template view<A, 2>().data, {cols_}};
}

template <class T>
void ColumnPart<T>::clear_gradients(const Context& ctx) {
  zero_bytes(ctx, dweight_.data(), dweight_.bytes());
  if (dbias_.size() > 0) zero_bytes(ctx, dbias_.data(), dbias_.bytes());
}

template <class T>
void ColumnPart<T>::add_gradients(const Context& ctx, View<A, 2> dweight, View<A, 1> dbias) {
  add_columns(ctx, std::as_const(dweight_).template view<A, 2>(), dweight);
  if (dbias.empty() || dbias_.size() == 0) return;
  add_columns(ctx, std::as_const(dbias_).template view<A, 2>(),
              View<A, 2>{dbias.data, {1, dbias.shape[0]}});
}

template class ColumnPart<double>;
template class ColumnPart<float>;
template class ColumnPart<bf16>;

}  // namespace turbogr::model
