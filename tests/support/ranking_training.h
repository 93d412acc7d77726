// Made-up steps of the ranking task, and a rank's share of them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "turbogr/core/philox.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/train/ranking_train_options.h"

namespace turbogr::test {

// What a model::RankingBatch points into.
struct OwnedRankingBatch {
  std::int64_t num_prefix = 0;
  std::vector<std::int64_t> offsets = {0}, num_targets, times;
  std::vector<std::uint32_t> actions;
  std::vector<std::uint64_t> row_keys;
  std::vector<std::vector<std::int64_t>> ids, bags;  // prefix features, then item features
  std::vector<model::FeatureIds> features;
  std::vector<float> labels, weights;
  std::vector<float> bases;
  std::int64_t tasks = 1;

  model::RankingBatch view() {
    features.clear();
    for (std::size_t f = 0; f < ids.size(); ++f) {
      features.push_back({view_of(std::as_const(ids[f])), view_of(std::as_const(bags[f]))});
    }
    const std::span<const model::FeatureIds> all = features;
    const auto c = static_cast<std::size_t>(num_prefix);
    const std::int64_t targets = std::ssize(labels) / tasks;
    return {.sequences = {.offsets = view_of(offsets),
                          .num_prefix = num_prefix,
                          .num_targets = view_of(std::as_const(num_targets)),
                          .times = view_of(std::as_const(times))},
            .actions = {actions.data(), {std::ssize(actions)}},
            .row_keys = {row_keys.data(), {std::ssize(row_keys)}},
            .prefix = all.first(c),
            .items = all.subspan(c),
            .labels = {labels.data(), targets, tasks, tasks},
            .weights = {weights.data(), targets, tasks, tasks},
            .bases = {bases.data(), bases.empty() ? 0 : targets, tasks, tasks}};
  }
};

inline std::vector<embedding::TableOptions> tables_of(const train::RankingTrainOptions& options) {
  std::vector<embedding::TableOptions> tables;
  for (const std::int64_t rows : options.features.table_rows) {
    tables.push_back({.rows = rows,
                      .width = options.model.embedding,
                      .optimiser = embedding::SparseOptimiser::kAdaGrad,
                      .start = 0.3,
                      .seed = tables.size() + 1});
  }
  return tables;
}

// A small world: one task asks whether an item is of the first half, the other whether it has its
// user's parity.

inline constexpr std::int64_t kItems = 30, kUsers = 12, kSequences = 9;

inline train::RankingTrainOptions small_ranking_training(
    model::ModelKind kind = model::ModelKind::kHstu) {
  train::RankingTrainOptions options = {
      .model = {.embedding = 6,
                .prefix = 2,
                .item_features = 2,
                .actions = 2,
                .tasks = 2,
                .kind = kind,
                .layers = 2,
                .width = 8,
                .heads = 2,
                .dq = 4,
                .dv = 4,
                .feed_forward = 6,
                .hidden = 10,
                .head_hidden = 12,
                .positions = 20,
                .time_buckets = 10,
                .max_length = 20,
                .max_history = 9,
                .norm_length = 16,
                .bases = true},
      .memory = {.layers = {.capacity = 200, .sequences = 12}, .targets = 40},
      // The users' favourite items share the items' table.
      .features = {
          .table_rows = {kItems, kUsers, 5},
          .prefix = {{.name = "user", .table = 1, .least_events = 3},
                     {.name = "favourites", .pooling = model::Pooling::kMean, .most_ids = 3}},
          .items = {{.name = "item"},
                    {.name = "tags", .table = 2, .pooling = model::Pooling::kSum, .most_ids = 2}}}};
  options.dense.rate = options.table.rate = 0.02;
  // Large ones: Adam's and AdaGrad's first steps divide a gradient by itself, so that a rounding
  // error where a gradient is nearly zero becomes a step of full size.
  options.dense.epsilon = options.table.epsilon = 1e-2;
  options.schedule.warmup_steps = 2;
  options.tables = tables_of(options);
  options.seed = 3;
  return options;
}

// Sequences of one step, in this order.
inline OwnedRankingBatch ranking_sequences(int step, std::span<const std::int64_t> sequences) {
  OwnedRankingBatch batch;
  batch.num_prefix = 2;
  batch.tasks = 2;
  batch.ids.resize(4);
  batch.bags = {{}, {0}, {}, {0}};
  const auto below = [](PhiloxStream& random, std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
  };
  for (const std::int64_t i : sequences) {
    PhiloxStream random(77, static_cast<std::uint64_t>(step * 1000 + i));
    const std::int64_t user = below(random, kUsers), history = below(random, 9);
    const std::int64_t targets = 1 + below(random, 3);
    batch.num_targets.push_back(targets);
    batch.offsets.push_back(batch.offsets.back() + 2 + history + targets);
    for (std::int64_t token = 0; token < 2 + history + targets; ++token) {
      batch.row_keys.push_back(static_cast<std::uint64_t>(i << 20 | token));
    }
    batch.ids[0].push_back(user);
    for (std::int64_t j = below(random, 4); j > 0; --j) {
      batch.ids[1].push_back(below(random, kItems));
    }
    batch.bags[1].push_back(std::ssize(batch.ids[1]));
    std::int64_t time = 100000;
    for (std::int64_t j = 0; j < history + targets; ++j) {
      const std::int64_t item = below(random, kItems + 1);  // one of them has no row
      time += below(random, 4000);
      batch.times.push_back(time);
      batch.ids[2].push_back(item);
      for (std::int64_t tags = below(random, 3); tags > 0; --tags) {
        batch.ids[3].push_back(below(random, 5));
      }
      batch.bags[3].push_back(std::ssize(batch.ids[3]));
      const bool liked = item < kItems / 2, own = item % 2 == user % 2;
      batch.actions.push_back((liked ? 1u : 0u) | (own ? 2u : 0u));
      if (j < history) continue;
      batch.labels.insert(batch.labels.end(), {liked ? 1.0f : 0.0f, own ? 1.0f : 0.0f});
      batch.weights.insert(batch.weights.end(), {1.0f, j % 2 == 0 ? 0.5f : 0.0f});
      batch.bases.insert(batch.bases.end(), {0.1f * static_cast<float>(item % 5) - 0.2f, 0.0f});
    }
  }
  return batch;
}

// Those that a rank has: every `ranks`-th from its own number on.
inline OwnedRankingBatch ranking_share(int step, int rank, int ranks) {
  std::vector<std::int64_t> sequences;
  for (std::int64_t i = rank; i < kSequences; i += ranks) sequences.push_back(i);
  return ranking_sequences(step, sequences);
}

}  // namespace turbogr::test
