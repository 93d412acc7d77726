// Ranking quality over the whole catalogue: HR@K, NDCG@K and MRR of the held-out item.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/data/loader.h"
#include "turbogr/data/sequence_parts.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/eval/retrieval_features.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/model/model.h"

namespace turbogr::eval {

// Sums over users; figures are means.
class RankingMetrics {
 public:
  explicit RankingMetrics(std::vector<std::int64_t> cutoffs);

  void add(std::int64_t rank);             // counted from 1
  void add_miss();                         // the target is no candidate: no rank at all
  void count_repeat() { ++repeats_; }      // the target of a user added was met before
  void add_up(dist::Communicator& ranks);  // becomes the sums over all of them
  std::int64_t users() const { return users_; }
  std::int64_t repeats() const { return repeats_; }
  double repeat_share() const;  // of all targets
  // hr@10, ndcg@10, ... for each cutoff in order, then mrr.
  std::vector<std::pair<std::string, double>> figures() const;

 private:
  std::vector<std::int64_t> cutoffs_;
  // In whole numbers, gains and reciprocals in units of 2^-36: sums that come out the same in any
  // order of users and on any number of ranks, to the last digit.
  std::vector<std::int64_t> hits_, gains_;
  std::int64_t reciprocal_ = 0;
  std::int64_t users_ = 0;
  std::int64_t repeats_ = 0;
};

// A line about targets that their users had met before, for people; empty where there were none.
std::string repeats_text(const RankingMetrics& metrics, SeenItems seen);

struct EvaluateOptions {
  std::vector<std::int64_t> cutoffs;
  SeenItems seen = SeenItems::kDrop;
  std::function<void(std::int64_t users)> progress;  // told after each batch how many are done
};

// What is evaluated: all outlive it. Batches have up to `capacity` tokens, those before histories
// included.
template <class T>
struct Evaluated {
  model::Model<T>& model;
  embedding::RowSource<T>& items;
  const RetrievalFeatures& features;
  data::SequenceParts parts;
  std::int64_t capacity = 0;
};

// Ranks every user of an evaluation loader. Collective over the ranks that share the items, each of
// whom has users of its own.
template <class T>
RankingMetrics evaluate(const Context& ctx, const Evaluated<T>& evaluated, data::Loader& loader,
                        const EvaluateOptions& options);

// The same with one score an item for everybody: what a popularity ranking reaches.
RankingMetrics evaluate_popularity(data::Loader& loader, const std::vector<float>& popularity,
                                   const EvaluateOptions& options);

}  // namespace turbogr::eval
