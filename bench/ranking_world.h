// Ranking models of published shapes, and batches made up for them: what `turbogr bench rank-step`
// and `rank-request` measure with. Generated data, unofficial.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_options.h"

namespace turbogr::bench {

struct RankingShape {
  std::string name;
  model::RankingOptions model;
  model::RankingFeatures features;       // tables cut
  std::vector<std::int64_t> whole_rows;  // of each table as the config names them
  std::int64_t nominal_length = 0;       // events of a sequence that FLOPs are quoted for
  bool timed = true;                     // events have times; else all the same one
};

// By configs/dlrmv4.toml and dlrmv3.toml; `cut` instead of their embedding.cut.
RankingShape dlrmv4_shape(std::int64_t cut);
RankingShape dlrmv3_shape(std::int64_t cut);

std::vector<embedding::TableOptions> tables_of(const RankingShape& shape, DType dtype);

// Histories and targets of a batch's sequences.
struct RankingLengths {
  std::vector<std::int64_t> history, targets;
};
// One target each; histories spread so that the FLOPs of their lengths are `fill` of the nominal.
RankingLengths filled_lengths(const RankingShape& shape, std::int64_t sequences, double fill);

// What a model::RankingBatch points into.
class MadeUpBatch {
 public:
  // Items as popular as a music service's; a user's crosses are hashes, as published.
  MadeUpBatch(const RankingShape& shape, const RankingLengths& lengths, std::uint64_t seed);
  MadeUpBatch(const MadeUpBatch&) = delete;  // view points into it
  MadeUpBatch& operator=(const MadeUpBatch&) = delete;

  const model::RankingBatch& view() const { return view_; }

 private:
  std::vector<std::int64_t> offsets_ = {0}, num_targets_, times_;
  std::vector<std::uint32_t> actions_;
  std::vector<std::uint64_t> row_keys_;
  std::vector<std::vector<std::int64_t>> prefix_ids_, item_ids_;
  std::vector<model::FeatureIds> prefix_, items_;
  std::vector<float> labels_, weights_;
  model::RankingBatch view_;
};

}  // namespace turbogr::bench
