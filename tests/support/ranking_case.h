// A small ranking model with a batch, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/event_case.h"
#include "turbogr/model/ranking_model.h"

namespace turbogr::test {

inline model::RankingOptions small_ranking(model::ModelKind kind = model::ModelKind::kHstu) {
  return {.embedding = 3,
          .prefix = 2,
          .item_features = 3,
          .actions = 2,
          .action_scale = 0.5,
          .tasks = 2,
          .kind = kind,
          .layers = 2,
          .width = 4,
          .heads = 2,
          .dq = 3,
          .dv = 2,
          .feed_forward = 5,
          .hidden = 5,
          .head_hidden = 6,
          .positions = 7,
          .time_buckets = 5,
          .max_length = 16,
          .max_history = 9,
          .norm_length = 9,
          .input_dropout = 0.2,
          .dropout = 0.1};
}

inline std::string kind_name(const ::testing::TestParamInfo<model::ModelKind>& each) {
  return each.param == model::ModelKind::kFuxi ? "Fuxi" : "Hstu";
}
inline auto model_kinds() {
  return ::testing::Values(model::ModelKind::kHstu, model::ModelKind::kFuxi);
}

// Histories and targets as the case says; the prefix must be the model's.
template <class T>
struct RankingBatch {
  EventBatch events;
  std::vector<std::int64_t> key_times, query_times;
  std::vector<float> bases;  // where the model has them
  model::RankingStep step;
  Tensor prefix, items, dlogits, dprefix, ditems;

  RankingBatch(const EventCase& c, const model::RankingOptions& o)
      : events(c),
        key_times(static_cast<std::size_t>(c.tokens())),
        query_times(key_times.size()),
        prefix(random_tensor<T>({std::ssize(c.history), o.prefix * o.embedding}, 1)),
        items(random_tensor<T>({c.events(), o.item_features * o.embedding}, 2)),
        dprefix(dtype_of<T>(), prefix.shape()),
        ditems(dtype_of<T>(), items.shape()) {
    step.sequences = events.view();
    step.actions = events.mask_view();
    fill_times();
    step.key_times = view_of(std::as_const(key_times));
    step.query_times = view_of(std::as_const(query_times));
    for (const std::int64_t targets : c.targets) step.num_targets += targets;
    if (o.bases) {
      for (std::int64_t i = 0; i < step.num_targets * o.tasks; ++i) {
        bases.push_back(0.25f * static_cast<float>(i) - 1);
      }
      step.bases = {bases.data(), {std::ssize(bases)}};
    }
    step.training = true;
    step.seed = 3;
    step.step = 17;
    dlogits = random_tensor<T>({step.num_targets, o.tasks}, 3);
    poison<T>(dprefix);
    poison<T>(ditems);
  }
  RankingBatch(const RankingBatch&) = delete;  // the step points into it
  RankingBatch& operator=(const RankingBatch&) = delete;

  void fill_times() {  // again, when those of events have changed
    const std::int64_t tokens = std::ssize(key_times);
    model::fill_token_times(step.sequences, {key_times.data(), {tokens}},
                            {query_times.data(), {tokens}});
  }

  model::RankingRows<const T> rows() const {
    return {prefix.template view<T, 2>(), items.template view<T, 2>()};
  }
  model::RankingRows<T> gradients() {
    return {dprefix.template view<T, 2>(), ditems.template view<T, 2>()};
  }
  model::RankingMemory memory() const {
    return {.layers = {.capacity = step.sequences.num_tokens() + 1,
                       .sequences = step.sequences.batch() + 1},
            .targets = step.num_targets + 1};
  }
};

}  // namespace turbogr::test
