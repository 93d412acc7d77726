// Ranking quality over the whole catalogue: HR@K, NDCG@K and MRR of the held-out item, seen items
// removed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/data/loader.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {

// Sums over users; figures are means.
class RankingMetrics {
 public:
  explicit RankingMetrics(std::vector<std::int64_t> cutoffs);

  void add(std::int64_t rank);             // counted from 1
  void add_up(dist::Communicator& ranks);  // becomes the sums over all of them
  std::int64_t users() const { return users_; }
  // hr@10, ndcg@10, ... for each cutoff in order, then mrr.
  std::vector<std::pair<std::string, double>> figures() const;

 private:
  std::vector<std::int64_t> cutoffs_;
  std::vector<double> hits_, gains_;
  double reciprocal_ = 0;
  std::int64_t users_ = 0;
};

// The item table as retrieval reads it: rows in T and the inverses of their lengths.
template <class T>
class ItemVectors {
 public:
  ItemVectors(const Context& ctx, const embedding::ItemTable& table);
  Rows<const T> rows() const { return rows_; }
  View<const float, 1> inverse_norms() const { return inverse_norms_.view<float, 1>(); }

 private:
  Tensor rounded_;  // bf16 only
  Tensor inverse_norms_;
  Rows<const T> rows_;
};

// Ranks every user of an evaluation loader. At most max_users of them; 0: all.
template <class T>
RankingMetrics evaluate(const Context& ctx, RetrievalTrainer<T>& trainer, data::Loader& loader,
                        const std::vector<std::int64_t>& cutoffs, std::int64_t max_users = 0);

// The same with one score an item for everybody: what a popularity ranking reaches.
RankingMetrics evaluate_popularity(const Context& ctx, data::Loader& loader,
                                   const std::vector<float>& popularity,
                                   const std::vector<std::int64_t>& cutoffs);

}  // namespace turbogr::train
