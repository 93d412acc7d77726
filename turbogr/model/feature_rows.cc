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

FeatureRows::FeatureRows(const Context& ctx, RankingFeatures features, std::int64_t sequences,
                         std::int64_t events)
    : features_(std::move(features)), most_sequences_(sequences), most_events_(events) {
  table_start_.push_back(0);
  for (const std::int64_t rows : features_.table_rows) {
    TGR_CHECK(rows >= 1, "table ", table_start_.size() - 1, " has ", rows,
              " rows; give at least 1, the row of unknown ids");
    table_start_.push_back(table_start_.back() + rows);
  }
  most_ids_.resize(num_tables());
  first_row_.resize(num_tables() + 1);
  const auto plan = [&](const std::vector<Feature>& each, std::int64_t count) {
    for (const Feature& feature : each) {
      check_feature(feature, num_tables());
      most_slots_ += count;
      most_uses_ += count * feature.most_ids;
      most_ids_[feature.table] += count * feature.most_ids;
    }
  };
  plan(features_.prefix, sequences);
  plan(features_.items, events);
  for (std::size_t t = 0; t < num_tables(); ++t) {
    most_ids_[t] = std::min(most_ids_[t], features_.table_rows[t]);
  }
  TGR_CHECK(std::max(most_slots_, most_uses_) <= std::numeric_limits<std::int32_t>::max(),
            "a batch reads up to ", most_uses_, " rows for ", most_slots_,
            " features; make the batch smaller");
  for (std::vector<std::int64_t>* each : {&ids_, &numbers_, &row_offsets_}) {
    each->reserve(static_cast<std::size_t>(most_uses_) + 1);
  }
  slot_offsets_.reserve(static_cast<std::size_t>(most_slots_) + 1);
  for (std::vector<std::int32_t>* each : {&rows_, &slots_, &positions_, &slots_by_row_}) {
    each->reserve(static_cast<std::size_t>(most_uses_));
  }
  weights_.reserve(static_cast<std::size_t>(most_uses_));
  weights_by_row_.reserve(static_cast<std::size_t>(most_uses_));
  ctx.host().workspace().reserve(ops::dedup_ids_workspace_bytes(most_uses_));
  if (ctx.device() == Device::kCpu) return;
  const auto uses = static_cast<std::size_t>(most_uses_);
  feed_ = Feed(ctx, Feed::room<std::int64_t>(static_cast<std::size_t>(most_slots_) + 1) +
                        Feed::room<std::int64_t>(uses + 1) + 2 * Feed::room<std::int32_t>(uses) +
                        2 * Feed::room<float>(uses));
}

void FeatureRows::check_batch(const Context& ctx, const RankingBatch& batch) const {
  const ops::EventSequences& sequences = batch.sequences;
  ops::check_event_sequences(ctx, "ranking batch", sequences);
  TGR_CHECK(batch.prefix.size() == features_.prefix.size() &&
                batch.items.size() == features_.items.size() &&
                sequences.num_prefix == std::ssize(features_.prefix),
            "a batch of ", batch.prefix.size(), " prefix features (", sequences.num_prefix,
            " tokens) and ", batch.items.size(), " item features; the model reads ",
            features_.prefix.size(), " and ", features_.items.size());
  TGR_CHECK(sequences.batch() <= most_sequences_ && sequences.num_events() <= most_events_,
            "a batch of ", sequences.batch(), " sequences and ", sequences.num_events(),
            " events where ", most_sequences_, " and ", most_events_,
            " were planned; plan for more or make the batch smaller");
  for (std::size_t f = 0; f < features_.prefix.size(); ++f) {
    check_ids(features_.prefix[f], batch.prefix[f], sequences.batch(), "sequences");
  }
  for (std::size_t f = 0; f < features_.items.size(); ++f) {
    check_ids(features_.items[f], batch.items[f], sequences.num_events(), "events");
  }
}

const Feature& FeatureRows::feature_of(std::int64_t slot) const {
  if (slot < num_prefix_slots_) {
    return features_.prefix[static_cast<std::size_t>(slot) % features_.prefix.size()];
  }
  return features_
      .items[static_cast<std::size_t>(slot - num_prefix_slots_) % features_.items.size()];
}

// What a slot reads: nothing, where the sequence is too short for the feature.
FeatureRows::Bag FeatureRows::bag_of(const RankingBatch& batch, std::int64_t slot) const {
  const Feature& feature = feature_of(slot);
  const bool prefix = slot < num_prefix_slots_;
  const auto features = std::ssize(prefix ? features_.prefix : features_.items);
  const std::int64_t at = prefix ? slot : slot - num_prefix_slots_;
  const std::int64_t row = at / features;
  const FeatureIds& given =
      (prefix ? batch.prefix : batch.items)[static_cast<std::size_t>(at % features)];
  if (prefix && event_sequence(batch.sequences, row).events() < feature.least_events) return {};
  if (feature.pooling == Pooling::kOne) return {given.ids.data + row, 1};
  const std::int64_t begin = given.offsets(row);
  return {given.ids.data + begin, std::min(given.offsets(row + 1) - begin, feature.most_ids)};
}

void FeatureRows::read(const Context& ctx, const RankingBatch& batch) {
  check_batch(ctx.host(), batch);
  num_prefix_slots_ = batch.sequences.batch() * std::ssize(features_.prefix);
  num_item_slots_ = batch.sequences.num_events() * std::ssize(features_.items);
  find_uses(ctx.host(), batch);
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

// Slot by slot, the rows' numbers and what each counts.
void FeatureRows::find_uses(const Context& ctx, const RankingBatch& batch) {
  grow(slot_offsets_, num_slots() + 1);
  parallel_ranges(ctx.pool(), num_slots(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      slot_offsets_[static_cast<std::size_t>(slot) + 1] = bag_of(batch, slot).count;
    }
  });
  slot_offsets_[0] = 0;
  for (std::size_t slot = 1; slot < slot_offsets_.size(); ++slot) {
    slot_offsets_[slot] += slot_offsets_[slot - 1];
  }
  const std::int64_t uses = slot_offsets_.back();
  grow(numbers_, uses);
  grow(slots_, uses);
  grow(weights_, uses);
  std::atomic<std::int64_t> outside{0};
  parallel_ranges(ctx.pool(), num_slots(), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t own_outside = 0;
    for (std::int64_t slot = begin; slot < end; ++slot) {
      const Bag bag = bag_of(batch, slot);
      if (bag.count == 0) continue;
      const Feature& feature = feature_of(slot);
      const float weight =
          feature.pooling == Pooling::kMean ? 1.0f / static_cast<float>(bag.count) : 1.0f;
      auto use = static_cast<std::size_t>(slot_offsets_[static_cast<std::size_t>(slot)]);
      for (std::int64_t i = 0; i < bag.count; ++i, ++use) {
        const bool inside = bag.ids[i] >= 0 && bag.ids[i] < features_.table_rows[feature.table];
        own_outside += inside ? 0 : 1;
        numbers_[use] = table_start_[feature.table] + (inside ? bag.ids[i] : 0);
        slots_[use] = static_cast<std::int32_t>(slot);
        weights_[use] = weight;
      }
    }
    outside.fetch_add(own_outside, std::memory_order_relaxed);
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
  const auto part = [&](std::int64_t first, std::int64_t count, const std::vector<Feature>& each) {
    const std::int64_t width = std::ssize(each) * slots.cols;
    return Rows<T>(slots.data + first * slots.cols, each.empty() ? 0 : count / std::ssize(each),
                   width, width);
  };
  return {part(0, num_prefix_slots_, features_.prefix),
          part(num_prefix_slots_, num_item_slots_, features_.items)};
}

PlannedBytes FeatureRows::bytes() const {
  PlannedBytes bytes = feed_.bytes();
  bytes.host +=
      (ids_.capacity() + numbers_.capacity() + row_offsets_.capacity() + slot_offsets_.capacity()) *
          sizeof(std::int64_t) +
      (rows_.capacity() + slots_.capacity() + positions_.capacity() + slots_by_row_.capacity() +
       weights_.capacity() + weights_by_row_.capacity()) *
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
