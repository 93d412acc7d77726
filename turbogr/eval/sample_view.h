// A batch of the loader as a ranking model reads it. Allocates nothing once it has seen as many
// features.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/data/batch.h"
#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/samples/samples.h"
#include "turbogr/data/windows.h"
#include "turbogr/eval/click_metrics.h"
#include "turbogr/model/ranking_batch.h"

namespace turbogr::eval {

class SampleView {
 public:
  explicit SampleView(std::int64_t tasks) : tasks_(tasks) {}

  // Points into the batch, and into this.
  model::RankingBatch of(const data::SampleBatch& batch) {
    features_.clear();
    const auto add = [&](const std::vector<data::SampleIds>& all) {
      for (const data::SampleIds& each : all) {
        features_.push_back(
            {data::view_of(each.ids), data::view_of(each.offsets), data::view_of(each.weights)});
      }
    };
    add(batch.prefix);
    add(batch.items);
    const std::span<const model::FeatureIds> features = features_;
    const std::int64_t targets = batch.count_targets();
    return {.sequences = {.offsets = data::view_of(batch.offsets),
                          .num_prefix = std::ssize(batch.prefix),
                          .num_targets = data::view_of(batch.num_targets),
                          .times = data::view_of(batch.times)},
            .actions = data::view_of(batch.actions),
            .row_keys = data::view_of(batch.row_keys),
            .prefix = features.first(batch.prefix.size()),
            .items = features.subspan(batch.prefix.size()),
            .labels = {batch.labels.data(), targets, tasks_, tasks_},
            .weights = {batch.weights.data(), targets, tasks_, tasks_},
            .bases = {batch.bases.data(), batch.bases.empty() ? 0 : targets, tasks_, tasks_}};
  }

  // [M] the user or the sample of each target. A sample has the same number on all ranks. Points
  // into the batch, or into this.
  View<const std::int64_t, 1> groups(const data::SampleBatch& batch, GroupBy by) {
    if (by == GroupBy::kUser) return data::view_of(batch.target_users);
    groups_.clear();
    for (std::size_t b = 0; b < batch.num_targets.size(); ++b) {
      const auto first_token = static_cast<std::size_t>(batch.offsets[b]);
      groups_.insert(groups_.end(), static_cast<std::size_t>(batch.num_targets[b]),
                     static_cast<std::int64_t>(batch.row_keys[first_token] >> data::kPositionBits));
    }
    return data::view_of(groups_);
  }

 private:
  std::int64_t tasks_;
  std::vector<model::FeatureIds> features_;
  std::vector<std::int64_t> groups_;
};

// Whether some group of an evaluation split's samples, which come user by user, has two targets.
inline bool compares_in_groups(const data::Samples& samples, GroupBy by) {
  for (std::size_t i = 0; i < samples.windows.size(); ++i) {
    if (samples.num_targets[i] > 1) return true;
    const bool same_user = i > 0 && samples.windows[i].user == samples.windows[i - 1].user;
    if (same_user && by == GroupBy::kUser) return true;
  }
  return false;
}

}  // namespace turbogr::eval
