// A batch of the loader as a ranking model reads it. Allocates nothing once it has seen as many
// features.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/data/batch.h"
#include "turbogr/data/samples/sample_batch.h"
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
            .weights = {batch.weights.data(), targets, tasks_, tasks_}};
  }

 private:
  std::int64_t tasks_;
  std::vector<model::FeatureIds> features_;
};

}  // namespace turbogr::eval
