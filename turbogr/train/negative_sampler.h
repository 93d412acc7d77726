// Which negatives a step trains against, and the correction their logits need for having been drawn
// unevenly.
//
//   uniform     every item of the catalogue alike
//   popularity  item v with weight count_v^alpha, count_v its targets in the training split
//   in_batch    the distinct positives of the global batch
//   mixed       fixed parts of a set from each of the three
//
// An item drawn with probability q has log(V q) taken off its logit where it is a negative: sampled
// softmax then leans to the full one, and alpha = 0 is uniform. In-batch, q is in proportion to the
// chance 1 - (1 - p)^N that an item of share p is among N positives. An item's own positive may
// come up; the loss masks it and corrects no positive.
//
//   NegativeSampler sampler({.kind = NegativeKind::kPopularity}, num_items, counts);
//   sampler.begin_step({seed, step});
//   sampler.add_positives(targets);            // of every batch of the step, on every rank
//   sampler.finish_positives();
//   sampler.draw_own(ctx, row_keys, ids);
//   sampler.corrections(ctx, touched_ids, correction);
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/draw_negatives.h"
#include "turbogr/train/negative_options.h"

namespace turbogr::train {

class NegativeSampler {
 public:
  // counts [V]: how often each item is a target of the training split; uniform needs none unless
  // it is of trained items only.
  NegativeSampler(const NegativeOptions& options, std::int64_t catalogue,
                  std::span<const std::int64_t> counts = {});

  const NegativeOptions& options() const { return options_; }
  bool needs_positives() const { return parts_[2] > 0; }
  bool corrects() const { return !class_correction_.empty(); }

  void begin_step(const ops::NegativeKey& key);
  // The positives of a batch; repeats count. Only where needs_positives().
  void add_positives(View<const std::int64_t, 1> targets) {
    add_positives(targets, targets.shape[0]);
  }
  // The same where repeats have been left out: there were `count` of them.
  void add_positives(View<const std::int64_t, 1> distinct, std::int64_t count);
  void finish_positives();
  void reserve_positives(std::int64_t count);  // of a step, so that adding them allocates nothing

  // ids [N, R]: a set for each token, drawn with replacement; row_keys [N] tell tokens apart.
  void draw_own(const Context& ctx, View<const std::uint64_t, 1> row_keys,
                View<std::int64_t, 2> ids) const;
  // One set for the tokens of the step's part `part`, in the first elements of ids [R]. Returns how
  // many: in-batch items are not repeated, so that a small batch may have fewer than asked for.
  std::int64_t draw_shared(const Context& ctx, std::int64_t part, View<std::int64_t, 1> ids);

  // Whether so many draws of tokens' own are as good as sure to come upon every candidate, all of
  // them uniform. A step of that many touches all candidates, drawn or not, and nobody has to know
  // a draw before the rows are numbered.
  bool draws_all(std::int64_t draws) const;
  std::int64_t num_candidates() const {
    return known_.empty() ? catalogue_ : static_cast<std::int64_t>(known_.size());
  }
  // Of uniform draws, ascending: the item that draw_places (ops/rows/draw_negatives.h) calls c.
  std::int64_t candidate(std::int64_t c) const {
    return known_.empty() ? c : known_[static_cast<std::size_t>(c)];
  }
  View<const std::int64_t, 1> known() const {  // empty: all items are candidates
    return {known_.data(), {static_cast<std::int64_t>(known_.size())}};
  }

  // out(i) = log(V q) of item ids(i), for sets as drawn in this step.
  void corrections(const Context& ctx, View<const std::int64_t, 1> ids, View<float, 1> out) const;
  double correction(std::int64_t id) const;

  std::size_t bytes() const;

 private:
  void classify(std::span<const std::int64_t> counts);
  ops::NegativeSource source(std::int64_t in_batch) const;
  void refresh_corrections();

  NegativeOptions options_;
  std::int64_t catalogue_;
  std::array<std::int64_t, 3> parts_;
  ops::NegativeKey key_;
  std::vector<ops::AliasSlot> alias_;
  std::vector<std::int64_t> known_;  // of trained items only: those
  // Items of equal count have equal q: there are far fewer counts than items.
  std::vector<std::int32_t> class_of_;    // [V]
  std::vector<double> class_share_;       // p of one item
  std::vector<std::int64_t> class_size_;  // items
  std::vector<double> class_popularity_;  // q of one item under popularity^alpha
  std::vector<double> class_correction_;  // of this step
  std::vector<std::int64_t> positives_;   // distinct, ascending
  std::vector<std::int64_t> choice_;      // scratch of draw_shared
  std::int64_t num_positives_ = 0;        // repeats counted
  std::int64_t in_batch_ = 0;             // in-batch negatives of a set in this step
};

}  // namespace turbogr::train
