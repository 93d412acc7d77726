#include "turbogr/train/ranking_flight.h"

#include <utility>

#include "turbogr/model/buffers.h"
#include "turbogr/model/ranking_inputs.h"

namespace turbogr::train {

using model::first_rows;

namespace {

template <class V>
View<const V, 1> copied(View<const V, 1> from, std::vector<V>& to) {
  to.assign(from.data, from.data + from.shape[0]);
  return {to.data(), {std::ssize(to)}};
}

Rows<const float> copied(Rows<const float> from, std::vector<float>& to) {
  to.clear();
  for (std::int64_t i = 0; i < from.rows; ++i) {
    to.insert(to.end(), from.row(i), from.row(i) + from.cols);
  }
  return {to.data(), from.rows, from.cols, from.cols};
}

}  // namespace

model::RankingBatch KeptRankingBatch::keep(const model::RankingBatch& batch) {
  const std::size_t prefix = batch.prefix.size(), all = prefix + batch.items.size();
  ids_.resize(all);
  features_.resize(all);
  for (std::size_t f = 0; f < all; ++f) {
    const model::FeatureIds& from = f < prefix ? batch.prefix[f] : batch.items[f - prefix];
    features_[f] = {copied(from.ids, ids_[f].ids), copied(from.offsets, ids_[f].offsets),
                    copied(from.weights, ids_[f].weights)};
  }
  const std::span<const model::FeatureIds> features = features_;
  return {.sequences = {.offsets = copied(batch.sequences.offsets, offsets_),
                        .num_prefix = batch.sequences.num_prefix,
                        .num_targets = copied(batch.sequences.num_targets, num_targets_),
                        .times = copied(batch.sequences.times, times_)},
          .actions = copied(batch.actions, actions_),
          .row_keys = copied(batch.row_keys, row_keys_),
          .prefix = features.first(prefix),
          .items = features.subspan(prefix),
          .labels = copied(batch.labels, labels_),
          .weights = copied(batch.weights, weights_),
          .bases = copied(batch.bases, bases_)};
}

PlannedBytes RankingRowMemory::bytes() const {
  PlannedBytes bytes;
  bytes.add(rows);
  bytes.add(gradient);
  return bytes;
}

template <class T>
RankingFlight<T>::RankingFlight(const Context& ctx, const RankingTrainOptions& options,
                                const embedding::RowSource<T>& source)
    : Flight(ctx, model::RankingInputs::kMostParts * options.model.tasks,
             std::ssize(options.features.table_rows)),
      feature_rows(ctx, options.features, options.batch.sequences, options.batch.tokens),
      weight_sums(static_cast<std::size_t>(options.model.tasks)),
      rows_(feature_rows.num_tables()),
      gradients_(feature_rows.num_tables()) {
  std::vector<std::int64_t> most;
  for (std::size_t t = 0; t < feature_rows.num_tables(); ++t) {
    most.push_back(feature_rows.most_ids(t));
    touched.emplace_back(options.features.table_rows[t], most.back());
  }
  request = source.make_request(ctx, most);
}

template <class T>
PlannedBytes RankingFlight<T>::bytes() const {
  PlannedBytes bytes = request->bytes();
  bytes += feature_rows.bytes();
  for (std::size_t t = 0; t < touched.size(); ++t) {
    bytes.host += embedding::TouchedRows::bytes_of(touched[t].rows(), feature_rows.most_ids(t));
  }
  return bytes;
}

template <class T>
Rows<T> RankingFlight<T>::all_rows() const {
  return first_rows<T>(memory->rows, feature_rows.num_rows());
}

template <class T>
Rows<float> RankingFlight<T>::gradient() const {
  return first_rows<float>(memory->gradient, feature_rows.num_rows());
}

template <class T>
std::span<const embedding::StepRows<T>> RankingFlight<T>::rows() {
  for (std::size_t t = 0; t < rows_.size(); ++t) {
    rows_[t] = {feature_rows.part_of(t, all_rows()), {}};
  }
  return rows_;
}

template <class T>
std::span<const Rows<const float>> RankingFlight<T>::gradients() {
  for (std::size_t t = 0; t < gradients_.size(); ++t) {
    gradients_[t] = feature_rows.part_of(t, gradient());
  }
  return gradients_;
}

template struct RankingFlight<float>;
template struct RankingFlight<bf16>;

}  // namespace turbogr::train
