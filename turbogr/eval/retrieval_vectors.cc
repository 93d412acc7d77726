#include "turbogr/eval/retrieval_vectors.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/eval/model_inputs.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::eval {
namespace {

constexpr double kShortest = 1e-6;           // of a vector that is scaled to length one
constexpr std::int64_t kItemsAtOnce = 4096;  // whose length is found together

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
ItemVectors<T>::ItemVectors(const Context& ctx, RowEncoder<T>& items,
                            const std::vector<std::int64_t>* chosen) {
  if (items.features().encodes_items()) {
    encode(ctx, items, chosen);
  } else {
    embedding::with_weights(
        std::as_const(items.source().shard(0).weight_tensor()),
        [&]<class Weight>(View<const Weight, 2> weights) { table_ = ops::StoredRows(weights); });
    if (chosen != nullptr) chosen_ = on_context(ctx, *chosen, chosen_there_);
    if (chosen != nullptr && chosen->empty()) table_.rows = 0;  // a null list would be all of them
  }
  const std::int64_t count = chosen == nullptr ? table_.rows : std::ssize(*chosen);
  inverse_norms_ = Tensor(DType::kF32, {count}, ctx.device());
  measure(ctx);
}

template <class T>
void ItemVectors<T>::encode(const Context& ctx, RowEncoder<T>& items,
                            const std::vector<std::int64_t>* chosen) {
  const embedding::RowSource<T>& source = items.source();
  const embedding::Sharding& sharding = source.sharding(0);
  const int own = source.shard_index();
  const std::int64_t count = chosen == nullptr ? sharding.rows_of(own) : std::ssize(*chosen);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = sharding.id_of(own, chosen == nullptr ? static_cast<std::int64_t>(i) : (*chosen)[i]);
  }
  encoded_ = Tensor(dtype_of<T>(), {count, items.width()}, ctx.device());
  items.items(ctx, data::view_of(ids), encoded_.view<T, 2>());
  synchronize(ctx);  // the ids go
  table_ = ops::StoredRows(encoded_.view<T, 2>());
}

// The inverse norms of the candidates as T has them, some at a time.
template <class T>
void ItemVectors<T>::measure(const Context& ctx) {
  const View<float, 1> out = inverse_norms_.view<float, 1>();
  ops::with_rows<T>(table_, [&]<class Stored>(Rows<const Stored> table) {
    if constexpr (std::is_same_v<Stored, T>) {
      if (chosen_.data == nullptr) return ops::inverse_norms<T>(ctx, table, kShortest, out);
    }
    const std::int64_t most = std::min(kItemsAtOnce, out.shape[0]);
    Tensor memory(dtype_of<T>(), {most, table.cols}, ctx.device()), all_there;
    std::vector<std::int64_t> all;  // places of a block
    if (chosen_.data == nullptr) {
      all.resize(static_cast<std::size_t>(most));
      std::iota(all.begin(), all.end(), 0);
    }
    const View<const std::int64_t, 1> places = on_context(ctx, all, all_there);
    for (std::int64_t first = 0; first < out.shape[0]; first += most) {
      const std::int64_t count = std::min(most, out.shape[0] - first);
      const Rows<T> block = model::first_rows<T>(memory, count);
      if (chosen_.data == nullptr) {
        const Rows<const Stored> rows(table.row(first), count, table.cols, table.stride);
        ops::gather_rows<Stored, T>(ctx, rows, {places.data, {count}}, block);
      } else {
        ops::gather_rows<Stored, T>(ctx, table, {chosen_.data + first, {count}}, block);
      }
      ops::inverse_norms<T>(ctx, block, kShortest, {out.data + first, {count}});
    }
    synchronize(ctx);  // the memory goes
  });
}

template <class T>
void ItemVectors<T>::add_to(ops::RetrievalInputs<T>& inputs) const {
  inputs.table = table_;
  inputs.chosen = chosen_;
  inputs.table_inverse_norms = inverse_norms_.view<float, 1>();
}

template <class T>
UserVectors<T>::UserVectors(const Context& ctx, model::Model<T>& model, RowEncoder<T>& rows,
                            const data::SequenceParts& parts, std::int64_t capacity)
    : model_(model),
      rows_(rows),
      marks_(parts),
      // Of a token: two times, row key, offset, two counts, the last one's place; its signals.
      feed_(ctx, static_cast<std::size_t>(capacity + 1) * (7 * 8 + 4) + 10 * 256),
      inputs_(dtype_of<T>(), {capacity, model.options().width}, ctx.device()),
      vectors_(dtype_of<T>(), {1, model.options().width}, ctx.device()),
      inverse_norms_(DType::kF32, {1}, ctx.device()) {}

template <class T>
void UserVectors<T>::make_room(const Context& ctx, std::int64_t users) {
  if (inverse_norms_.size() >= users) return;
  const std::int64_t room = std::max(users, 2 * inverse_norms_.size());
  Tensor vectors(dtype_of<T>(), {room, inputs_.shape()[1]}, ctx.device());
  Tensor inverse(DType::kF32, {room}, ctx.device());
  const auto kept = static_cast<std::size_t>(users_);
  const auto width = static_cast<std::size_t>(inputs_.shape()[1]);
  copy_bytes(ctx, vectors.data(), vectors_.data(), kept * width * sizeof(T));
  copy_bytes(ctx, inverse.data(), inverse_norms_.data(), kept * sizeof(float));
  synchronize(ctx);  // the old ones go
  vectors_ = std::move(vectors);
  inverse_norms_ = std::move(inverse);
}

template <class T>
void UserVectors<T>::add(const Context& ctx, const data::Batch& batch) {
  const std::int64_t prefix = rows_.features().num_prefix();
  const std::int64_t n = batch.num_tokens() + batch.num_sequences() * prefix;
  TGR_CHECK(n <= inputs_.shape()[0], "an evaluation batch of ", n, " tokens where ",
            inputs_.shape()[0], " were planned for; ask for fewer users at once");
  const std::int64_t before = users_, added = batch.num_sequences();
  make_room(ctx, before + added);
  users_ += added;
  const Rows<T> inputs = model::first_rows<T>(inputs_, n);
  rows_.tokens(ctx, batch, inputs);
  if (n == 0) return;
  feed_.begin();
  const model::StepInput input =
      model_input(ctx, batch, prefix, /*training=*/false, /*seed=*/0, /*step=*/0, marks_, feed_);
  const View<std::int64_t, 1> last = feed_.take<std::int64_t>(added);
  for (std::int64_t b = 0; b < added; ++b) {
    last(b) = batch.offsets[static_cast<std::size_t>(b) + 1] - 1 + (b + 1) * prefix;
  }
  const View<const std::int64_t, 1> last_tokens = feed_.send(ctx, last);
  feed_.end(ctx);
  const Rows<T> all = model::first_rows<T>(vectors_, users_);
  const Rows<T> vectors(all.row(before), added, all.cols, all.stride);
  ops::gather_rows<T>(ctx, model_.forward(ctx, input, inputs), last_tokens, vectors);
  ops::inverse_norms<T>(ctx, vectors, kShortest,
                        {inverse_norms_.view<float, 1>().data + before, {added}});
}

template <class T>
Rows<const T> UserVectors<T>::rows() const {
  return model::first_rows<T>(vectors_, users_);
}

template <class T>
View<const float, 1> UserVectors<T>::inverse_norms() const {
  return model::first_values<float>(inverse_norms_, users_);
}

template <class T>
void TargetVectors<T>::gather(const Context& ctx, RowEncoder<T>& items,
                              const std::vector<std::int64_t>& ids) {
  count_ = std::ssize(ids);
  const std::int64_t room = std::max<std::int64_t>(count_, 1);
  if (inverse_norms_.size() < room) {
    rows_ = Tensor(dtype_of<T>(), {room, items.width()}, ctx.device());
    inverse_norms_ = Tensor(DType::kF32, {room}, ctx.device());
  }
  const Rows<T> rows = model::first_rows<T>(rows_, count_);
  items.items(ctx, data::view_of(ids), rows);
  if (count_ == 0) return;
  ops::inverse_norms<T>(ctx, rows, kShortest, model::first_values<float>(inverse_norms_, count_));
}

template <class T>
Rows<const T> TargetVectors<T>::rows() const {
  return model::first_rows<T>(rows_, count_);
}

template <class T>
View<const float, 1> TargetVectors<T>::inverse_norms() const {
  return model::first_values<float>(inverse_norms_, count_);
}

template class TargetVectors<float>;
template class TargetVectors<bf16>;
template class ItemVectors<float>;
template class ItemVectors<bf16>;
template class UserVectors<float>;
template class UserVectors<bf16>;

}  // namespace turbogr::eval
