#include "turbogr/eval/row_encoder.h"

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/row_arithmetic.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::eval {
namespace {

constexpr std::int64_t kItemsAtOnce = 1 << 16;

}  // namespace

template <class T>
RowEncoder<T>::Encoding::Encoding(const Context& ctx, const RetrievalFeatures& features,
                                  const FeatureSize& size, std::int64_t width)
    : inputs(features, size), rows(ctx, features.table_rows(), feature_lists(features, size)) {
  fetched = Tensor(dtype_of<T>(), {rows.most_rows(), width}, ctx.device());
  slots = Tensor(dtype_of<T>(), {rows.most_slots(), width}, ctx.device());
  ctx.workspace().reserve(rows.workspace_bytes(ctx, width));
}

template <class T>
RowEncoder<T>::RowEncoder(const Context& ctx, embedding::RowSource<T>& source,
                          const RetrievalFeatures& features, std::int64_t capacity)
    : source_(source), features_(features), width_(source.shard(0).width()) {
  if (features.empty()) return;
  if (features.encodes_items()) {
    items_at_once_ = std::min(kItemsAtOnce, source.sharding(0).rows());
    items_.emplace(ctx, features, FeatureSize{.items = true, .most_items = items_at_once_}, width_);
  }
  tokens_.emplace(ctx, features,
                  FeatureSize{.batches = 1, .most_tokens = capacity, .most_sequences = capacity},
                  width_);
}

// Rows of the features that were read, brought from all tables and pooled. Collective.
template <class T>
Rows<T> RowEncoder<T>::pooled(const Context& ctx, Encoding& encoding) {
  model::FeatureRows& features = encoding.rows;
  features.read(ctx, encoding.inputs.places());
  TGR_CHECK(features.out_of_range() == 0, features.out_of_range(),
            " codes of features are outside of their tables; the store is damaged, run `turbogr "
            "data verify`");
  const Rows<T> rows = model::first_rows<T>(encoding.fetched, features.num_rows());
  for (std::size_t t = 0; t < features.num_tables(); ++t) {
    const View<const std::int64_t, 1> ids = features.ids(t);
    source_.gather(ctx, 1 + t, ids,
                   {rows.row(features.first_row(t)), ids.shape[0], rows.cols, rows.cols});
  }
  const Rows<T> slots = model::first_rows<T>(encoding.slots, features.num_slots());
  features.pool<T>(ctx, rows, slots);
  return slots;
}

template <class T>
void RowEncoder<T>::items(const Context& ctx, View<const std::int64_t, 1> ids, Rows<T> out) {
  source_.gather(ctx, 0, ids, out);
  if (!items_) return;
  const std::int64_t most = items_at_once_;
  std::int64_t turns = (ids.shape[0] + most - 1) / most;  // all ranks take as many
  if (source_.group() != nullptr) source_.group()->all_reduce({&turns, 1}, dist::Reduce::kMax);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::int64_t first = std::min(turn * most, ids.shape[0]);
    const std::int64_t count = std::min(most, ids.shape[0] - first);
    items_->inputs.clear();
    items_->inputs.set_items({ids.data + first, {count}});
    const Rows<T> features = pooled(ctx, *items_);
    ops::add_rows<T>(ctx, features, {out.row(first), count, out.cols, out.stride});
  }
}

template <class T>
void RowEncoder<T>::tokens(const Context& ctx, const data::Batch& batch, Rows<T> out) {
  if (!tokens_) return source_.gather(ctx, 0, data::view_of(batch.items), out);
  const std::int64_t events = batch.num_tokens(), prefix = features_.num_prefix();
  TGR_CHECK(out.rows == events + batch.num_sequences() * prefix, "rows of ", out.rows,
            " tokens for ", events, " events of ", batch.num_sequences(), " sequences with ",
            prefix, " tokens before each");
  tokens_->inputs.clear();
  tokens_->inputs.add_batch(batch);
  const Rows<T> slots = pooled(ctx, *tokens_);
  const Rows<T> rows(out.data, events, out.cols, out.stride);
  source_.gather(ctx, 0, data::view_of(batch.items), rows);
  if (prefix == 0) return ops::add_rows<T>(ctx, slots, rows);
  ops::add_rows<T>(ctx, rows, {slots.data, events, slots.cols, slots.stride});
  feed_.begin(ctx, Feed::room<std::int64_t>(static_cast<std::size_t>(out.rows)));
  const View<std::int64_t, 1> order = feed_.take<std::int64_t>(out.rows);
  PrefixOrder::slots_of_tokens(batch.offsets_view(), prefix, order);
  ops::gather_rows<T>(ctx, slots, feed_.send(ctx, order), out);
  feed_.end(ctx);
}

template class RowEncoder<float>;
template class RowEncoder<bf16>;

}  // namespace turbogr::eval
