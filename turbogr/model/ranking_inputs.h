// How a ranking batch gets to a model's device: its sequences, actions, labels and weights, cut
// into parts of as many sequences as the model takes at a time.
//
//   for (const RankingPart& part : inputs.send(ctx, batch)) {
//     model.forward(ctx, part.step, rows_of(part, all_rows));
//     ...
//   }
//
// Letters as in ranking_batch.h, of a part where it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/view.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_model.h"

namespace turbogr::model {

// Of the largest batch.
struct RankingBatchSize {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  std::int64_t targets = 0;
};
inline RankingBatchSize size_of(const RankingMemory& memory) {
  return {memory.layers.sequences, memory.layers.capacity, memory.targets};
}

// Memory of the context's device.
struct RankingPart {
  RankingStep step;                   // but for what the caller knows: training, seed, norm_length
  Rows<const float> labels, weights;  // [M, K] of the part
  // Where the part begins in the batch.
  std::int64_t first_sequence = 0, first_event = 0, first_target = 0;
};

// The part's rows among those of a batch. T may be const.
template <class T>
RankingRows<T> rows_of(const RankingPart& part, const RankingRows<T>& all) {
  const auto some = [](const Rows<T>& rows, std::int64_t first, std::int64_t count) {
    return Rows<T>(rows.row(first), rows.rows == 0 ? 0 : count, rows.cols, rows.stride);
  };
  return {some(all.prefix, part.first_sequence, part.step.sequences.batch()),
          some(all.items, part.first_event, part.step.sequences.num_events())};
}

class RankingInputs {
 public:
  static constexpr std::int64_t kMostParts = 128;

  // For batches up to `size` and a model that takes `memory` at a time.
  RankingInputs(const Context& ctx, const RankingOptions& model, const RankingMemory& memory,
                const RankingBatchSize& size);

  // The parts of a batch, whose sequences have been checked (FeatureRows); none of an empty one.
  // They stay until the call after the next. Nothing waits for a GPU.
  std::span<const RankingPart> send(const Context& ctx, const RankingBatch& batch);

  PlannedBytes bytes() const { return feed_.bytes(); }

 private:
  std::int64_t end_of_part(const ops::EventSequences& sequences, std::int64_t first) const;

  std::int64_t max_length_;
  bool token_times_;  // wanted by the model
  RankingMemory memory_;
  RankingBatchSize size_;
  Feed feed_;
  std::vector<RankingPart> parts_;
};

}  // namespace turbogr::model
