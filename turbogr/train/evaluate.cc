#include "turbogr/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/convert.h"
#include "turbogr/ops/top_k.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;

constexpr double kShortest = 1e-6;  // of a vector that is scaled to length one

// Device memory for an evaluation batch, and the host's side of it.
template <class T>
struct Query {
  Tensor vectors, inverse, targets, excluded, offsets, ranks;

  // Grows to hold the batch; host data is copied in.
  void fit(const Context& ctx, std::int64_t users, std::int64_t width) {
    if (inverse.size() >= users) return;
    vectors = Tensor(dtype_of<T>(), {users, width}, ctx.device());
    inverse = Tensor(DType::kF32, {users}, ctx.device());
    ranks = Tensor(DType::kI64, {users}, ctx.device());
  }
};

// The values where the context's device can read them.
View<const std::int64_t, 1> on_context(const Context& ctx, const std::vector<std::int64_t>& values,
                                       Tensor& memory) {
  if (ctx.device() == Device::kCpu) return data::view_of(values);
  const auto count = static_cast<std::int64_t>(values.size());
  if (memory.size() < count) memory = Tensor(DType::kI64, {count}, ctx.device());
  if (count > 0) copy_bytes(ctx, memory.data(), values.data(), values.size() * sizeof(values[0]));
  return {memory.view<std::int64_t, 1>().data, {count}};
}

}  // namespace

RankingMetrics::RankingMetrics(std::vector<std::int64_t> cutoffs)
    : cutoffs_(std::move(cutoffs)), hits_(cutoffs_.size()), gains_(cutoffs_.size()) {}

void RankingMetrics::add(std::int64_t rank) {
  ++users_;
  reciprocal_ += 1.0 / static_cast<double>(rank);
  for (std::size_t k = 0; k < cutoffs_.size(); ++k) {
    if (rank > cutoffs_[k]) continue;
    hits_[k] += 1;
    gains_[k] += 1 / std::log2(static_cast<double>(rank) + 1);
  }
}

void RankingMetrics::add_up(dist::Communicator& ranks) {
  ranks.all_reduce(hits_, dist::Reduce::kSum);
  ranks.all_reduce(gains_, dist::Reduce::kSum);
  ranks.all_reduce({&reciprocal_, 1}, dist::Reduce::kSum);
  ranks.all_reduce({&users_, 1}, dist::Reduce::kSum);
}

std::vector<std::pair<std::string, double>> RankingMetrics::figures() const {
  const double users = static_cast<double>(std::max<std::int64_t>(users_, 1));
  std::vector<std::pair<std::string, double>> figures;
  for (std::size_t k = 0; k < cutoffs_.size(); ++k) {
    figures.emplace_back("hr@" + std::to_string(cutoffs_[k]), hits_[k] / users);
    figures.emplace_back("ndcg@" + std::to_string(cutoffs_[k]), gains_[k] / users);
  }
  figures.emplace_back("mrr", reciprocal_ / users);
  return figures;
}

template <class T>
ItemVectors<T>::ItemVectors(const Context& ctx, const embedding::ItemTable& table)
    : inverse_norms_(DType::kF32, {table.rows()}, ctx.device()) {
  if constexpr (std::is_same_v<T, float>) {
    rows_ = table.weights();
  } else {
    rounded_ = Tensor(dtype_of<T>(), {table.rows(), table.width()}, ctx.device());
    const View<T, 2> out = rounded_.view<T, 2>();
    const View<const float, 2> from = table.weights();
    ops::convert_values<T, float>(ctx, {from.data, {from.size()}}, {out.data, {out.size()}});
    rows_ = out;
  }
  ops::inverse_norms<T>(ctx, rows_, kShortest, inverse_norms_.view<float, 1>());
}

template <class T>
RankingMetrics evaluate(const Context& ctx, RetrievalTrainer<T>& trainer, data::Loader& loader,
                        const std::vector<std::int64_t>& cutoffs, std::int64_t max_users) {
  const ItemVectors<T> items(ctx, trainer.table());
  RankingMetrics metrics(cutoffs);
  Batch batch;
  Query<T> query;
  std::vector<std::int64_t> targets, ranks;
  while (loader.next(batch)) {
    const std::int64_t users = batch.num_sequences();
    if (users == 0) continue;  // fewer users are left than there are ranks
    // The rest of the epoch is read to its end, so that the next evaluation starts at its
    // beginning.
    if (max_users > 0 && metrics.users() >= max_users) continue;
    query.fit(ctx, users, trainer.table().width());
    const Rows<T> vectors = first_rows<T>(query.vectors, users);
    trainer.last_vectors(ctx, batch, vectors);
    targets.resize(static_cast<std::size_t>(users));
    ranks.resize(static_cast<std::size_t>(users));
    for (std::size_t b = 0; b < targets.size(); ++b) {
      targets[b] = batch.targets[static_cast<std::size_t>(batch.offsets[b + 1] - 1)];
    }
    const View<float, 1> inverse_norms = model::first_values<float>(query.inverse, users);
    ops::inverse_norms<T>(ctx, vectors, kShortest, inverse_norms);
    ctx.workspace().reserve(
        ops::top_k_workspace_bytes(ctx, users, trainer.table().width(),
                                   static_cast<std::int64_t>(batch.seen_items.size()), 0));
    const View<std::int64_t, 1> found = model::first_values<std::int64_t>(query.ranks, users);
    ops::rank_of_target<T>(ctx,
                           {.query = vectors,
                            .table = items.rows(),
                            .query_inverse_norms = inverse_norms,
                            .table_inverse_norms = items.inverse_norms(),
                            .excluded = on_context(ctx, batch.seen_items, query.excluded),
                            .excluded_offsets = on_context(ctx, batch.seen_offsets, query.offsets),
                            .target = on_context(ctx, targets, query.targets)},
                           found);
    copy_bytes(ctx, ranks.data(), found.data, ranks.size() * sizeof(ranks[0]));
    synchronize(ctx);
    for (const std::int64_t rank : ranks) {
      if (max_users == 0 || metrics.users() < max_users) metrics.add(rank);
    }
  }
  return metrics;
}

RankingMetrics evaluate_popularity(const Context&, data::Loader& loader,
                                   const std::vector<float>& popularity,
                                   const std::vector<std::int64_t>& cutoffs) {
  RankingMetrics metrics(cutoffs);
  // Items by falling popularity: a target's rank is its place less the seen items before it.
  std::vector<float> sorted = popularity;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<std::int64_t> seen;
  Batch batch;
  while (loader.next(batch)) {
    for (std::size_t b = 0; b < batch.users.size(); ++b) {
      const std::int64_t target = batch.targets[static_cast<std::size_t>(batch.offsets[b + 1] - 1)];
      const float score = popularity.at(static_cast<std::size_t>(target));
      const auto higher = std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
      std::int64_t rank = 1 + (higher - sorted.begin());
      seen.assign(batch.seen_items.begin() + batch.seen_offsets[b],
                  batch.seen_items.begin() + batch.seen_offsets[b + 1]);
      std::sort(seen.begin(), seen.end());
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
      for (const std::int64_t item : seen) {
        if (item != target && popularity[static_cast<std::size_t>(item)] > score) --rank;
      }
      metrics.add(rank);
    }
  }
  return metrics;
}

#define TGR_INSTANTIATE(T)                                                                 \
  template class ItemVectors<T>;                                                           \
  template RankingMetrics evaluate<T>(const Context&, RetrievalTrainer<T>&, data::Loader&, \
                                      const std::vector<std::int64_t>&, std::int64_t);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::train
