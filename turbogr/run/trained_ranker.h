// A ranking model from a checkpoint, to evaluate and to score with: weights and rows, no optimiser.
//
//   TrainedRanker ranker(checkpoint, store, {.bounds = ...}, world);
//   Evaluation found = ranker.evaluate(data::Split::kTest);
//   std::vector<float> scores = ranker.score({&request, 1});
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/ranking_setup.h"
#include "turbogr/run/task.h"

namespace turbogr::run {

inline constexpr std::int64_t kSamplesAtOnce = 128;  // of an evaluation
inline constexpr std::int64_t kTargetsAtOnce = 256;  // of a request; more go in pieces

class TrainedRanker {
 public:
  enum class Use : std::uint8_t { kEvaluate, kScore };
  enum class Weights : std::uint8_t {
    kTrained,
    kFresh
  };  // fresh: as a run starts, to compare with

  // The store must have the items and features that the checkpoint was trained on; throws where it
  // does not. `threads` 0: one a core. Runs on the device it was trained on, or on the CPU where
  // there is no such device. Several ranks share the tables: then all calls are collective. All
  // outlive it.
  TrainedRanker(const checkpoint::Checkpoint& checkpoint, const data::Store& store, int threads,
                dist::Communicator& world, Use use, Weights weights = Weights::kTrained);
  ~TrainedRanker();

  const Config& config() const { return config_; }
  const RankingSetup& setup() const { return setup_; }

  // Over a rank's share of the targets of a split; GAUC by the groups of the run, or by others.
  Evaluation evaluate(data::Split split);
  Evaluation evaluate(data::Split split, eval::GroupBy groups);
  // [M, K] in the order of requests and their items: probabilities, or the numbers themselves.
  std::vector<float> score(std::span<const data::SampleRequest> requests);

 private:
  struct Scorer;
  template <class T>
  struct ScorerOf;

  Config config_;
  const data::Store& store_;
  RankingSetup setup_;
  std::unique_ptr<Scorer> scorer_;
};

}  // namespace turbogr::run
