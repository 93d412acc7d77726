// A checkpoint opened for use: the model as it was trained, ready to score users of a store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/eval/top_items.h"
#include "turbogr/run/config.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {

// Which checkpoint a run folder stands for.
enum class Pick { kBest, kNewest };

// A run folder, its checkpoints folder or one checkpoint. Of a folder: the best checkpoint, where
// the run has kept one, or else the newest whole one.
checkpoint::Checkpoint open_checkpoint(const std::string& path, Pick pick = Pick::kBest);

// The same of several ranks: rank 0 chooses, all must find the same one there, and each compares
// its share of the bytes. Collective.
checkpoint::Checkpoint open_checkpoint(dist::Communicator& world, const std::string& path,
                                       Pick pick = Pick::kBest);

// The store named, or the one the run was trained on when `given` is empty.
data::Store open_store(const Config& config, const std::string& given);

// Throws, naming the command to use, where a checkpoint is of the ranking task.
void check_finds_items(const Config& config, const checkpoint::Checkpoint& checkpoint);

// What a TrainedModel plans memory for, unless told that fewer will come: batches hold as many
// users as this, or as one of the longest history.
inline constexpr std::int64_t kTokensAtOnce = 16384;

class TrainedModel {
 public:
  enum class Weights { kTrained, kFresh };  // fresh: as a run starts, to compare with

  // Reads the weights; items are matched to the store's by id. `threads` 0: one a core. Runs on the
  // device it was trained on, or on the CPU where there is no such device. Several ranks share the
  // items, each reading its part: then all calls are collective. The world outlives it.
  TrainedModel(const checkpoint::Checkpoint& checkpoint, const data::Store& store, int threads,
               dist::Communicator& world, Weights weights = Weights::kTrained,
               std::int64_t most_tokens = kTokensAtOnce);
  ~TrainedModel();

  const Config& config() const { return config_; }

  // From now on only these items are recommended: indices of the store, ascending. None: all are.
  void set_candidates(std::vector<std::int64_t> items);
  // The k best candidates for each sequence of the batch, best first; batch.seen_items as the rule
  // has them. Scores are those of evaluate, to the bit. A rank may come with an empty batch.
  std::vector<std::vector<eval::Recommendation>> recommend(const data::Batch& batch, std::int64_t k,
                                                           eval::SeenItems seen);
  // Over a rank's share of the users of a split, every item of the store a candidate.
  eval::RankingMetrics evaluate(data::Split split, const eval::EvaluateOptions& options,
                                const Share& share = {});
  // The vectors retrieval compares, of length one, in f32 on the host: [B, D] for the batch; of the
  // items from `first` on into `out`, in memory of their own for some thousand of them. All ranks
  // ask for the same items.
  Tensor user_vectors(const data::Batch& batch);
  void item_vectors(std::int64_t first, View<float, 2> out);

 private:
  struct Scorer;
  template <class T>
  struct ScorerOf;

  Config config_;
  const data::Store& store_;
  std::unique_ptr<Scorer> scorer_;
};

}  // namespace turbogr::run
