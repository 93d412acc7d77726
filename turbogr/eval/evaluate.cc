#include "turbogr/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/eval/retrieval_vectors.h"
#include "turbogr/eval/target_ranks.h"

namespace turbogr::eval {
namespace {

using data::Batch;

std::int64_t target_of(const Batch& batch, std::size_t user) {
  return batch.targets[static_cast<std::size_t>(batch.offsets[user + 1] - 1)];
}

std::span<const std::int64_t> seen_of(const Batch& batch, std::size_t user) {
  const auto begin = static_cast<std::size_t>(batch.seen_offsets[user]);
  const auto end = static_cast<std::size_t>(batch.seen_offsets[user + 1]);
  return std::span(batch.seen_items).subspan(begin, end - begin);
}

bool met_before(const Batch& batch, std::size_t user) {
  const std::span<const std::int64_t> seen = seen_of(batch, user);
  return std::find(seen.begin(), seen.end(), target_of(batch, user)) != seen.end();
}

// One user's rank goes into the figures as the rule about seen items has it. `rank` is the target's
// among all candidates and itself.
void count_user(bool repeated, std::int64_t rank, SeenItems rule, RankingMetrics& metrics) {
  if (repeated) metrics.count_repeat();
  if (repeated && rule == SeenItems::kDrop) {
    metrics.add_miss();
  } else {
    metrics.add(rank);
  }
}

// A share of one as a whole number: 2^27 users may be summed.
constexpr double kUnits = std::int64_t{1} << 36;
std::int64_t units_of(double share) { return std::llround(share * kUnits); }

// Scored together, so that a pass over the items serves many users.
constexpr std::int64_t kUsersAtOnce = 1024;

// What is asked of users whose vectors wait.
struct Questions {
  std::vector<std::int64_t> targets, seen, seen_offsets = {0};
  std::vector<bool> repeated;

  void add(const Batch& batch) {
    for (std::size_t b = 0; b < batch.users.size(); ++b) {
      targets.push_back(target_of(batch, b));
      repeated.push_back(met_before(batch, b));
      const std::span<const std::int64_t> met = seen_of(batch, b);
      seen.insert(seen.end(), met.begin(), met.end());
      seen_offsets.push_back(std::ssize(seen));
    }
  }
  void clear() {
    targets.clear();
    repeated.clear();
    seen.clear();
    seen_offsets.assign(1, 0);
  }
};

}  // namespace

RankingMetrics::RankingMetrics(std::vector<std::int64_t> cutoffs)
    : cutoffs_(std::move(cutoffs)), hits_(cutoffs_.size()), gains_(cutoffs_.size()) {}

void RankingMetrics::add(std::int64_t rank) {
  ++users_;
  reciprocal_ += units_of(1.0 / static_cast<double>(rank));
  for (std::size_t k = 0; k < cutoffs_.size(); ++k) {
    if (rank > cutoffs_[k]) continue;
    hits_[k] += 1;
    gains_[k] += units_of(1 / std::log2(static_cast<double>(rank) + 1));
  }
}

void RankingMetrics::add_miss() { ++users_; }

void RankingMetrics::add_up(dist::Communicator& ranks) {
  ranks.all_reduce(hits_, dist::Reduce::kSum);
  ranks.all_reduce(gains_, dist::Reduce::kSum);
  ranks.all_reduce({&reciprocal_, 1}, dist::Reduce::kSum);
  ranks.all_reduce({&users_, 1}, dist::Reduce::kSum);
  ranks.all_reduce({&repeats_, 1}, dist::Reduce::kSum);
}

double RankingMetrics::repeat_share() const {
  return static_cast<double>(repeats_) / static_cast<double>(std::max<std::int64_t>(users_, 1));
}

std::vector<std::pair<std::string, double>> RankingMetrics::figures() const {
  const double users = static_cast<double>(std::max<std::int64_t>(users_, 1));
  std::vector<std::pair<std::string, double>> figures;
  for (std::size_t k = 0; k < cutoffs_.size(); ++k) {
    figures.emplace_back("hr@" + std::to_string(cutoffs_[k]),
                         static_cast<double>(hits_[k]) / users);
    figures.emplace_back("ndcg@" + std::to_string(cutoffs_[k]),
                         static_cast<double>(gains_[k]) / kUnits / users);
  }
  figures.emplace_back("mrr", static_cast<double>(reciprocal_) / kUnits / users);
  return figures;
}

std::string repeats_text(const RankingMetrics& metrics, SeenItems seen) {
  if (metrics.repeats() == 0) return "";
  return fmt::format("  {} of {} targets ({:.1f} %) are items their user had met before: {}\n",
                     metrics.repeats(), metrics.users(), 100 * metrics.repeat_share(),
                     seen == SeenItems::kDrop ? "misses, as seen items are dropped"
                                              : "seen items stay candidates");
}

template <class T>
RankingMetrics evaluate(const Context& ctx, const Evaluated<T>& evaluated, data::Loader& loader,
                        const EvaluateOptions& options) {
  embedding::RowSource<T>& items = evaluated.items;
  items.settle(ctx);
  RowEncoder<T> rows(ctx, items, evaluated.features, evaluated.capacity);
  TargetRanks<T> ranks(ctx, rows);
  UserVectors<T> users(ctx, evaluated.model, rows, evaluated.parts, evaluated.capacity);
  RankingMetrics metrics(options.cutoffs);
  Questions questions;
  const auto score = [&] {
    Exclusions excluded;
    if (options.seen == SeenItems::kDrop) excluded = {&questions.seen, &questions.seen_offsets};
    const std::vector<std::int64_t>& found = ranks.compute(ctx, users, questions.targets, excluded);
    for (std::size_t b = 0; b < found.size(); ++b) {
      count_user(questions.repeated[b], found[b], options.seen, metrics);
    }
    questions.clear();
    users.clear();
    if (options.progress) options.progress(metrics.users());
  };
  // Ranks that share the items go on together, until all have run out of users.
  struct Wish {
    std::int64_t users = 0, waiting = 0;
  };
  Batch batch;
  while (true) {
    const bool mine = loader.next(batch);
    Wish most = {mine ? 1 : 0, users.users()};
    if (items.group() != nullptr) items.group()->all_reduce({&most.users, 2}, dist::Reduce::kMax);
    if (most.users == 0) break;
    if (!mine) batch = {.offsets = {0}, .seen_offsets = {0}};
    users.add(ctx, batch);
    questions.add(batch);
    if (most.waiting >= kUsersAtOnce) score();
  }
  score();
  return metrics;
}

RankingMetrics evaluate_popularity(data::Loader& loader, const std::vector<float>& popularity,
                                   const EvaluateOptions& options) {
  RankingMetrics metrics(options.cutoffs);
  // Items by falling popularity: a target's rank is its place less the seen items before it.
  std::vector<float> sorted = popularity;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<std::int64_t> seen;
  Batch batch;
  while (loader.next(batch)) {
    for (std::size_t b = 0; b < batch.users.size(); ++b) {
      const std::int64_t target = target_of(batch, b);
      const float score = popularity.at(static_cast<std::size_t>(target));
      const auto higher = std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
      std::int64_t rank = 1 + (higher - sorted.begin());
      if (options.seen == SeenItems::kDrop) {
        const std::span<const std::int64_t> met = seen_of(batch, b);
        seen.assign(met.begin(), met.end());
        std::sort(seen.begin(), seen.end());
        seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
        for (const std::int64_t item : seen) {
          if (popularity.at(static_cast<std::size_t>(item)) > score) --rank;
        }
      }
      count_user(met_before(batch, b), rank, options.seen, metrics);
    }
    if (options.progress) options.progress(metrics.users());
  }
  return metrics;
}

#define TGR_INSTANTIATE(T)                                                                \
  template RankingMetrics evaluate<T>(const Context&, const Evaluated<T>&, data::Loader&, \
                                      const EvaluateOptions&);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::eval
