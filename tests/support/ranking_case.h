// A small ranking model with a batch, for tests.
#pragma once

#include <cstdint>

#include "tests/support/data.h"
#include "tests/support/event_case.h"
#include "turbogr/model/ranking_model.h"

namespace turbogr::test {

inline model::RankingOptions small_ranking() {
  return {.embedding = 3,
          .prefix = 2,
          .item_features = 3,
          .actions = 2,
          .action_scale = 0.5,
          .tasks = 2,
          .layers = 2,
          .width = 4,
          .heads = 2,
          .dq = 3,
          .dv = 2,
          .hidden = 5,
          .head_hidden = 6,
          .positions = 7,
          .time_buckets = 5,
          .max_length = 16,
          .norm_length = 9,
          .input_dropout = 0.2,
          .dropout = 0.1};
}

// Histories and targets as the case says; the prefix must be the model's.
template <class T>
struct RankingBatch {
  EventBatch events;
  model::RankingStep step;
  Tensor prefix, items, dlogits, dprefix, ditems;

  RankingBatch(const EventCase& c, const model::RankingOptions& o)
      : events(c),
        prefix(random_tensor<T>({std::ssize(c.history), o.prefix * o.embedding}, 1)),
        items(random_tensor<T>({c.events(), o.item_features * o.embedding}, 2)),
        dprefix(dtype_of<T>(), prefix.shape()),
        ditems(dtype_of<T>(), items.shape()) {
    step.sequences = events.view();
    step.actions = events.mask_view();
    for (const std::int64_t targets : c.targets) step.num_targets += targets;
    step.training = true;
    step.seed = 3;
    step.step = 17;
    dlogits = random_tensor<T>({step.num_targets, o.tasks}, 3);
    poison<T>(dprefix);
    poison<T>(ditems);
  }
  RankingBatch(const RankingBatch&) = delete;  // the step points into it
  RankingBatch& operator=(const RankingBatch&) = delete;

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
