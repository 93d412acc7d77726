#include "turbogr/model/feature_rows.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::model {
namespace {

constexpr std::int64_t kGrain = 4096;

template <class T>
View<const T, 1> first_of(const std::vector<T>& values, std::int64_t count) {
  return {values.data(), {count}};
}

template <class T>
void grow(std::vector<T>& values, std::int64_t count) {
  values.resize(static_cast<std::size_t>(count));
}

void check_feature(const Feature& feature, std::size_t tables) {
  TGR_CHECK(feature.table < tables, "feature '", feature.name, "' reads table ", feature.table,
            " of ", tables);
  TGR_CHECK(feature.most_ids >= 1, "feature '", feature.name, "' reads at most ", feature.most_ids,
            " ids; give at least 1");
  TGR_CHECK(feature.pooling != Pooling::kOne || feature.most_ids == 1, "feature '", feature.name,
            "' has one id but may read ", feature.most_ids, "; pool them by sum or mean");
}

void check_ids(const Feature& feature, const FeatureIds& given, std::int64_t count,
               const char* whose) {
  TGR_CHECK(given.weights.shape[0] == 0 ||
                (feature.pooling == Pooling::kSum && given.weights.shape[0] == given.ids.shape[0]),
            "feature '", feature.name, "' has ", given.weights.shape[0], " weights for ",
            given.ids.shape[0], " ids; give one each, of rows that are summed, or none");
  if (feature.pooling == Pooling::kOne) {
    TGR_CHECK(given.offsets.shape[0] == 0 && given.ids.shape[0] == count, "feature '", feature.name,
              "' has ", given.ids.shape[0], given.offsets.shape[0] == 0 ? "" : " ids in bags, not",
              " ids for ", count, ' ', whose, "; give one each");
    return;
  }
  const Offsets& bags = given.offsets;
  TGR_CHECK(bags.shape[0] == count + 1, "feature '", feature.name, "' has ", bags.shape[0],
            " offsets for the bags of ", count, ' ', whose, "; give ", count + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    TGR_CHECK(bags(i) >= 0 && bags(i) <= bags(i + 1) && bags(i + 1) <= given.ids.shape[0],
              "feature '", feature.name, "': bag ", i, " is ids ", bags(i), " up to ", bags(i + 1),
              " of ", given.ids.shape[0]);
  }
}

}  // namespace

std::vector<std::int64_t> most_feature_ids(const std::vector<std::int64_t>& table_rows,
                                           const std::vector<FeatureList>& lists) {
  std::vector<std::int64_t> most(table_rows.size());
  for (const FeatureList& list : lists) {
    for (const Feature& feature : list.features) {
      most[feature.table] += list.most_places * feature.most_ids;
    }
  }
  for (std::size_t t = 0; t < most.size(); ++t) most[t] = std::min(most[t], table_rows[t]);
  return most;
}

FeatureRows::FeatureRows(const Context& ctx, std::vector<std::int64_t> table_rows,
                         std::vector<FeatureList> lists)
    : table_rows_(std::move(table_rows)), lists_(std::move(lists)) {
  table_start_.push_back(0);
  for (const std::int64_t rows : table_rows_) {
    TGR_CHECK(rows >= 1, "table ", table_start_.size() - 1, " has ", rows,
              " rows; give at least 1, the row of unknown ids");
    table_start_.push_back(table_start_.back() + rows);
  }
  first_row_.resize(num_tables() + 1);
  first_cell_.resize(lists_.size() + 1);
  first_slot_.resize(lists_.size() + 1);
  for (const FeatureList& list : lists_) {
    const std::int64_t cells = list.most_places * std::ssize(list.features);
    most_cells_ += cells;
    most_slots_ += list.summed ? list.most_places : cells;
    for (const Feature& feature : list.features) {
      check_feature(feature, num_tables());
      most_uses_ += list.most_places * feature.most_ids;
    }
  }
  most_ids_ = most_feature_ids(table_rows_, lists_);
  TGR_CHECK(std::max(most_slots_, most_uses_) <= std::numeric_limits<std::int32_t>::max(),
            "a batch reads up to ", most_uses_, " rows for ", most_slots_,
            " features; make the batch smaller");
  for (std::vector<std::int64_t>* each : {&ids_, &numbers_, &row_offsets_}) {
    each->reserve(static_cast<std::size_t>(most_uses_) + 1);
  }
  cell_offsets_.reserve(static_cast<std::size_t>(most_cells_) + 1);
  slot_offsets_.reserve(static_cast<std::size_t>(most_slots_) + 1);
  for (std::vector<std::int32_t>* each : {&rows_, &slots_, &positions_, &slots_by_row_}) {
    each->reserve(static_cast<std::size_t>(most_uses_));
  }
  weights_.reserve(static_cast<std::size_t>(most_uses_));
  weights_by_row_.reserve(static_cast<std::size_t>(most_uses_));
  reserve(ctx);
  if (ctx.device() == Device::kCpu) return;
  const auto uses = static_cast<std::size_t>(most_uses_);
  feed_ = Feed(ctx, Feed::room<std::int64_t>(static_cast<std::size_t>(most_slots_) + 1) +
                        Feed::room<std::int64_t>(uses + 1) + 2 * Feed::room<std::int32_t>(uses) +
                        2 * Feed::room<float>(uses));
}

FeatureRows::FeatureRows(const Context& ctx, const RankingFeatures& features,
                         std::int64_t sequences, std::int64_t events)
    : FeatureRows(ctx, features.table_rows,
                  {{features.prefix, sequences}, {features.items, events}}) {}

void FeatureRows::reserve(const Context& ctx) const {
  ctx.host().workspace().reserve(ops::dedup_ids_workspace_bytes(most_uses_));
}

void FeatureRows::check_places(std::span<const FeaturePlaces> places) const {
  TGR_CHECK(places.size() == lists_.size(), "a batch with ", places.size(),
            " lists of features; the model reads ", lists_.size());
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const FeatureList& list = lists_[l];
    TGR_CHECK(places[l].ids.size() == list.features.size(), "a batch of ", places[l].ids.size(),
              " features of ", places[l].whose, "; the model reads ", list.features.size());
    TGR_CHECK(places[l].count <= list.most_places, "a batch of ", places[l].count, ' ',
              places[l].whose, " where ", list.most_places,
              " were planned; plan for more or make the batch smaller");
    for (std::size_t f = 0; f < list.features.size(); ++f) {
      check_ids(list.features[f], places[l].ids[f], places[l].count, places[l].whose);
    }
  }
}

FeatureRows::Bag FeatureRows::bag_of(const Feature& feature, const FeaturePlaces& places,
                                     std::size_t index, std::int64_t place) {
  const FeatureIds& given = places.ids[index];
  if (feature.least_events > 0 && places.sequences != nullptr &&
      event_sequence(*places.sequences, place).events() < feature.least_events) {
    return {};
  }
  if (feature.pooling == Pooling::kOne) return {given.ids.data + place, 1, nullptr};
  const std::int64_t begin = given.offsets(place);
  return {given.ids.data + begin, std::min(given.offsets(place + 1) - begin, feature.most_ids),
          given.weights.shape[0] == 0 ? nullptr : given.weights.data + begin};
}

void FeatureRows::read(const Context& ctx, const RankingBatch& batch) {
  const ops::EventSequences& sequences = batch.sequences;
  ops::check_event_sequences(ctx.host(), "ranking batch", sequences);
  TGR_CHECK(sequences.num_prefix == std::ssize(batch.prefix), "a batch of ", batch.prefix.size(),
            " prefix features (", sequences.num_prefix, " tokens); give a token each");
  const FeaturePlaces places[] = {{sequences.batch(), batch.prefix, &sequences, "sequences"},
                                  {sequences.num_events(), batch.items, nullptr, "events"}};
  read(ctx, places);
}

void FeatureRows::read(const Context& ctx, std::span<const FeaturePlaces> places) {
  check_places(places);
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const std::int64_t cells = places[l].count * std::ssize(lists_[l].features);
    first_cell_[l + 1] = first_cell_[l] + cells;
    first_slot_[l + 1] = first_slot_[l] + (lists_[l].summed ? places[l].count : cells);
  }
  find_uses(ctx.host(), places);
  find_rows(ctx.host());
  send_lists(ctx);
}

void FeatureRows::send_lists(const Context& ctx) {
  const std::int64_t uses = std::ssize(rows_);
  const bool gpu = ctx.device() != Device::kCpu;
  if (gpu) feed_.begin();
  const auto sent = [&](const auto& list, std::int64_t count) {
    return feed_.put(ctx, first_of(list, count));
  };
  picks_of_slots_ = {sent(slot_offsets_, num_slots() + 1), sent(rows_, uses), sent(weights_, uses)};
  picks_of_rows_ = {sent(row_offsets_, num_rows() + 1), sent(slots_by_row_, uses),
                    sent(weights_by_row_, uses)};
  if (gpu) feed_.end(ctx);
}

// work(list, cell of it, feature, bag) for every cell, by several threads.
template <class Work>
void FeatureRows::for_each_cell(const Context& ctx, std::span<const FeaturePlaces> places,
                                const Work& work) const {
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const std::vector<Feature>& features = lists_[l].features;
    const std::int64_t cells = first_cell_[l + 1] - first_cell_[l];
    parallel_ranges(ctx.pool(), cells, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t cell = begin; cell < end; ++cell) {
        const std::int64_t place = cell / std::ssize(features);
        const auto f = static_cast<std::size_t>(cell % std::ssize(features));
        work(l, cell, features[f], bag_of(features[f], places[l], f, place));
      }
    });
  }
}

// Cell by cell, the rows' numbers and what each counts.
void FeatureRows::find_uses(const Context& ctx, std::span<const FeaturePlaces> places) {
  grow(cell_offsets_, first_cell_.back() + 1);
  for_each_cell(ctx, places, [&](std::size_t l, std::int64_t cell, const Feature&, const Bag& bag) {
    cell_offsets_[static_cast<std::size_t>(first_cell_[l] + cell) + 1] = bag.count;
  });
  cell_offsets_[0] = 0;
  for (std::size_t cell = 1; cell < cell_offsets_.size(); ++cell) {
    cell_offsets_[cell] += cell_offsets_[cell - 1];
  }
  grow(slot_offsets_, num_slots() + 1);
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const std::int64_t cells_a_slot = lists_[l].summed ? std::ssize(lists_[l].features) : 1;
    for (std::int64_t slot = first_slot_[l]; slot < first_slot_[l + 1]; ++slot) {
      slot_offsets_[static_cast<std::size_t>(slot)] = cell_offsets_[static_cast<std::size_t>(
          first_cell_[l] + (slot - first_slot_[l]) * cells_a_slot)];
    }
  }
  const std::int64_t uses = cell_offsets_.back();
  slot_offsets_.back() = uses;
  grow(numbers_, uses);
  grow(slots_, uses);
  grow(weights_, uses);
  std::atomic<std::int64_t> outside{0};
  for_each_cell(
      ctx, places, [&](std::size_t l, std::int64_t cell, const Feature& feature, const Bag& bag) {
        const std::int64_t place = cell / std::ssize(lists_[l].features);
        const std::int64_t slot = first_slot_[l] + (lists_[l].summed ? place : cell);
        const float weight =
            feature.pooling == Pooling::kMean ? 1.0f / static_cast<float>(bag.count) : 1.0f;
        auto use = static_cast<std::size_t>(
            cell_offsets_[static_cast<std::size_t>(first_cell_[l] + cell)]);
        for (std::int64_t i = 0; i < bag.count; ++i, ++use) {
          const bool inside = bag.ids[i] >= 0 && bag.ids[i] < table_rows_[feature.table];
          if (!inside) outside.fetch_add(1, std::memory_order_relaxed);
          numbers_[use] = table_start_[feature.table] + (inside ? bag.ids[i] : 0);
          slots_[use] = static_cast<std::int32_t>(slot);
          weights_[use] = bag.weights == nullptr ? weight : bag.weights[i];
        }
      });
  out_of_range_ = outside.load();
}

// The distinct rows, which come table by table, and their uses.
void FeatureRows::find_rows(const Context& ctx) {
  const std::int64_t uses = std::ssize(numbers_);
  grow(ids_, uses);
  grow(row_offsets_, uses + 1);
  for (std::vector<std::int32_t>* each : {&rows_, &positions_, &slots_by_row_}) grow(*each, uses);
  grow(weights_by_row_, uses);
  const std::int64_t distinct = ops::dedup_ids(ctx, first_of(numbers_, uses),
                                               {{ids_.data(), {uses}},
                                                {row_offsets_.data(), {uses + 1}},
                                                {positions_.data(), {uses}},
                                                {rows_.data(), {uses}}});
  grow(ids_, distinct);
  grow(row_offsets_, distinct + 1);
  row_offsets_.back() = uses;
  parallel_ranges(ctx.pool(), uses, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto use = static_cast<std::size_t>(positions_[i]);
      slots_by_row_[i] = slots_[use];
      weights_by_row_[i] = weights_[use];
    }
  });
  for (std::size_t t = 0; t <= num_tables(); ++t) {
    first_row_[t] = std::lower_bound(ids_.begin(), ids_.end(), table_start_[t]) - ids_.begin();
  }
  for (std::size_t t = 0; t < num_tables(); ++t) {
    for (std::int64_t row = first_row_[t]; row < first_row_[t + 1]; ++row) {
      ids_[static_cast<std::size_t>(row)] -= table_start_[t];
    }
  }
}

View<const std::int64_t, 1> FeatureRows::ids(std::size_t table) const {
  return {ids_.data() + first_row_[table], {first_row_[table + 1] - first_row_[table]}};
}

std::int64_t FeatureRows::most_rows() const {
  std::int64_t all = 0;
  for (const std::int64_t most : most_ids_) all += most;
  return all;
}

template <class T>
void FeatureRows::pool(const Context& ctx, Rows<const T> rows, Rows<T> slots) const {
  ops::sum_weighted_rows<T, T>(ctx, rows, picks_of_slots_, slots);
}

template <class T>
void FeatureRows::sum_gradients(const Context& ctx, Rows<const T> dslots, Rows<float> drows) const {
  ops::sum_weighted_rows<T, float>(ctx, dslots, picks_of_rows_, drows);
}

std::size_t FeatureRows::workspace_bytes(const Context& ctx, std::int64_t width) const {
  return ops::sum_weighted_rows_workspace_bytes(ctx, most_uses_, width);
}

template <class T>
RankingRows<T> FeatureRows::split(Rows<T> slots) const {
  TGR_CHECK(slots.rows == num_slots() && slots.stride == slots.cols, "features in [", slots.rows,
            ", ", slots.cols, "] rows ", slots.stride, " apart; wanted ", num_slots(),
            " that lie close together");
  const auto part = [&](std::size_t list) {
    const std::int64_t features = std::ssize(lists_[list].features);
    const std::int64_t count = first_slot_[list + 1] - first_slot_[list];
    const std::int64_t width = features * slots.cols;
    return Rows<T>(slots.data + first_slot_[list] * slots.cols,
                   features == 0 ? 0 : count / features, width, width);
  };
  return {part(0), part(1)};
}

PlannedBytes FeatureRows::bytes() const {
  PlannedBytes bytes = feed_.bytes();
  bytes.host += (ids_.capacity() + numbers_.capacity() + row_offsets_.capacity() +
                 slot_offsets_.capacity() + cell_offsets_.capacity()) *
                    sizeof(std::int64_t) +
                (rows_.capacity() + slots_.capacity() + positions_.capacity() +
                 slots_by_row_.capacity() + weights_.capacity() + weights_by_row_.capacity()) *
                    sizeof(float);
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                       \
  template void FeatureRows::pool<T>(const Context&, Rows<const T>, Rows<T>) const;              \
  template void FeatureRows::sum_gradients<T>(const Context&, Rows<const T>, Rows<float>) const; \
  template RankingRows<T> FeatureRows::split<T>(Rows<T>) const;                                  \
  template RankingRows<const T> FeatureRows::split<const T>(Rows<const T>) const;
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::model
