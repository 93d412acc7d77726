#include "turbogr/balance/balancer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "turbogr/balance/differencing.h"
#include "turbogr/core/check.h"

namespace turbogr::balance {
namespace {

// Polishing ends when the busiest rank is this near the mean; what is left cannot be measured.
constexpr double kNearEnough = 1e-4;
// Exchanges tried a rank, on the whole.
constexpr int kExchangesARank = 8;
// Idle ranks tried for one busy rank.
constexpr int kPartners = 8;

}  // namespace

Balancer::Balancer(const BalancerOptions& options) : options_(options) {
  TGR_CHECK(options.ranks >= 1, "a plan for ", options.ranks, " ranks; use at least 1");
  TGR_CHECK(options.cost.per_token >= 0 && options.cost.per_pair >= 0 &&
                options.cost.per_token + options.cost.per_pair > 0,
            "a cost of ", options.cost.per_token, " a token and ", options.cost.per_pair,
            " a pair; neither may be below zero, nor both zero");
  items_.resize(static_cast<std::size_t>(options.ranks));
  if (options.block <= 0 || options.ranks <= 2 * options.block) return;
  for (int first = 0; first < options.ranks; first += options.block) {
    BalancerOptions inside = options;
    inside.ranks = std::min(options.block, options.ranks - first);
    inside.block = 0;
    blocks_.emplace_back(inside);
  }
  dealt_.resize(blocks_.size());
  // The first rank of every block, the second of every block, ...
  for (int place = 0; place < options.block; ++place) {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      if (place < blocks_[block].options_.ranks) {
        turns_.push_back(static_cast<std::int32_t>(block));
      }
    }
  }
}

void Balancer::plan(std::span<const std::int64_t> lengths, std::span<const std::int32_t> current) {
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  TGR_CHECK(find(lengths, current), total, " tokens in ", lengths.size(),
            " sequences found no place on ", options_.ranks, " ranks of ", options_.max_tokens,
            " tokens; raise the budget a rank, or take fewer sequences a step");
}

void Balancer::sort_by_cost(std::span<const std::int64_t> lengths) {
  lengths_ = lengths;
  costs_.resize(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    TGR_CHECK(lengths[i] >= 0, "sequence ", i, " has ", lengths[i], " tokens");
    costs_[i] = options_.cost.cost(lengths[i]);
  }
  order_.resize(lengths.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
    const double left = costs_[static_cast<std::size_t>(a)];
    const double right = costs_[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  });
}

bool Balancer::find(std::span<const std::int64_t> lengths, std::span<const std::int32_t> current) {
  TGR_CHECK(current.empty() || current.size() == lengths.size(), current.size(), " ranks for ",
            lengths.size(), " sequences");
  sort_by_cost(lengths);
  for (Plan* each : {&first_, &second_, &current_}) each->fits = false;
  if (!current.empty()) {
    for (const std::int32_t rank : current) {
      TGR_CHECK(rank >= 0 && rank < options_.ranks, "rank ", rank, " of ", options_.ranks);
    }
    current_.rank_of.assign(current.begin(), current.end());
    judge(current_);
  }
  if (!blocks_.empty()) return find_in_blocks(current);
  if (options_.method != Method::kKarmarkarKarp) longest_first(first_);
  if (options_.method != Method::kLongestFirst) karmarkar_karp(second_);
  const Plan* best = nullptr;
  for (const Plan* each : {&first_, &second_, &current_}) {
    if (each->fits && (best == nullptr || each->most < best->most)) best = each;
  }
  if (best == nullptr) return false;
  take(*best);
  if (options_.polish) polish();
  return true;
}

// Two ways to deal sequences to blocks: in turns by falling cost, there and back, which evens the
// blocks' work but may leave one that cannot be packed; and as the ranks of a block have them now.
bool Balancer::find_in_blocks(std::span<const std::int32_t> current) {
  const auto blocks = static_cast<int>(blocks_.size());
  for (auto& items : dealt_) items.clear();
  for (std::size_t at = 0; at < order_.size(); ++at) {
    const std::size_t turn = at % (2 * turns_.size());
    const std::int32_t block = turns_[turn < turns_.size() ? turn : 2 * turns_.size() - 1 - turn];
    dealt_[static_cast<std::size_t>(block)].push_back(order_[at]);
  }
  const auto plan_blocks = [&](std::span<const std::int32_t> now, Plan& plan) {
    plan.rank_of.assign(lengths_.size(), 0);
    for (int block = 0; block < blocks; ++block) {
      if (!plan_block(block, now, plan)) return;
    }
    judge(plan);
  };
  plan_blocks({}, first_);
  if (!first_.fits && !current.empty()) {
    for (auto& items : dealt_) items.clear();
    for (const std::int32_t item : order_) {
      dealt_[static_cast<std::size_t>(current[static_cast<std::size_t>(item)] / options_.block)]
          .push_back(item);
    }
    plan_blocks(current, second_);
  }
  const Plan* best = nullptr;
  for (const Plan* each : {&first_, &second_, &current_}) {
    if (each->fits && (best == nullptr || each->most < best->most)) best = each;
  }
  if (best == nullptr) return false;
  take(*best);
  return true;
}

// `current`: as the block's ranks have its sequences now, or empty.
bool Balancer::plan_block(int block, std::span<const std::int32_t> current, Plan& plan) {
  const std::vector<std::int32_t>& items = dealt_[static_cast<std::size_t>(block)];
  const std::int32_t first = block * options_.block;
  block_lengths_.clear();
  block_current_.clear();
  for (const std::int32_t item : items) {
    block_lengths_.push_back(lengths_[static_cast<std::size_t>(item)]);
    if (!current.empty()) {
      block_current_.push_back(current[static_cast<std::size_t>(item)] - first);
    }
  }
  Balancer& inside = blocks_[static_cast<std::size_t>(block)];
  if (!inside.find(block_lengths_, block_current_)) return false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    plan.rank_of[static_cast<std::size_t>(items[i])] = first + inside.rank_of()[i];
  }
  return true;
}

// Whoever has least to do gets the next longest, if it has the room.
void Balancer::longest_first(Plan& plan) {
  using Load = std::pair<double, std::int32_t>;
  plan.rank_of.assign(lengths_.size(), 0);
  plan.fits = false;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(options_.ranks), 0);
  std::vector<Load> storage;
  storage.reserve(tokens.size());
  for (std::int32_t rank = 0; rank < options_.ranks; ++rank) storage.emplace_back(0.0, rank);
  std::priority_queue<Load, std::vector<Load>, std::greater<>> idle(std::greater<>(),
                                                                    std::move(storage));
  std::vector<Load> full;
  for (const std::int32_t item : order_) {
    const auto at = static_cast<std::size_t>(item);
    full.clear();
    while (!idle.empty() && options_.max_tokens > 0 &&
           tokens[static_cast<std::size_t>(idle.top().second)] + lengths_[at] >
               options_.max_tokens) {
      full.push_back(idle.top());
      idle.pop();
    }
    if (idle.empty()) return;
    auto [work, rank] = idle.top();
    idle.pop();
    plan.rank_of[at] = rank;
    tokens[static_cast<std::size_t>(rank)] += lengths_[at];
    idle.emplace(work + costs_[at], rank);
    for (const Load& load : full) idle.push(load);
  }
  judge(plan);
}

void Balancer::karmarkar_karp(Plan& plan) {
  plan.rank_of.resize(lengths_.size());
  difference(costs_, order_, options_.ranks, plan.rank_of);
  judge(plan);
}

void Balancer::judge(Plan& plan) {
  std::vector<double> work(static_cast<std::size_t>(options_.ranks), 0.0);
  std::vector<std::int64_t> tokens(work.size(), 0);
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    const auto rank = static_cast<std::size_t>(plan.rank_of[i]);
    work[rank] += costs_[i];
    tokens[rank] += lengths_[i];
  }
  plan.most = *std::max_element(work.begin(), work.end());
  plan.fits = options_.max_tokens == 0 ||
              *std::max_element(tokens.begin(), tokens.end()) <= options_.max_tokens;
}

void Balancer::take(const Plan& plan) {
  rank_of_ = plan.rank_of;
  work_.assign(static_cast<std::size_t>(options_.ranks), 0.0);
  tokens_.assign(work_.size(), 0);
  for (auto& items : items_) items.clear();
  for (const std::int32_t item : order_) {
    const auto at = static_cast<std::size_t>(item);
    const auto rank = static_cast<std::size_t>(rank_of_[at]);
    items_[rank].push_back(item);
    work_[rank] += costs_[at];
    tokens_[rank] += lengths_[at];
  }
}

void Balancer::polish() {
  if (options_.ranks == 1 || lengths_.empty()) return;
  const double mean =
      std::accumulate(work_.begin(), work_.end(), 0.0) / static_cast<double>(work_.size());
  for (int turn = 0; turn < kExchangesARank * options_.ranks; ++turn) {
    const auto busy =
        static_cast<std::int32_t>(std::max_element(work_.begin(), work_.end()) - work_.begin());
    if (work_[static_cast<std::size_t>(busy)] <= mean * (1 + kNearEnough)) return;
    if (!ease(busy)) return;
  }
}

// Takes work from the busiest rank, trying the idlest ones as partners.
bool Balancer::ease(std::int32_t busy) {
  const int partners = std::min(kPartners, options_.ranks - 1);
  std::vector<std::int32_t> idle(work_.size());
  std::iota(idle.begin(), idle.end(), 0);
  std::partial_sort(idle.begin(), idle.begin() + partners, idle.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const double left = work_[static_cast<std::size_t>(a)];
                      const double right = work_[static_cast<std::size_t>(b)];
                      return left != right ? left < right : a < b;
                    });
  for (int i = 0; i < partners; ++i) {
    if (idle[static_cast<std::size_t>(i)] != busy &&
        exchange(busy, idle[static_cast<std::size_t>(i)])) {
      return true;
    }
  }
  return false;
}

// The move or swap that leaves the busier of the two with least, if that is less than before.
bool Balancer::exchange(std::int32_t busy, std::int32_t idle) {
  const auto from = static_cast<std::size_t>(busy);
  const auto to = static_cast<std::size_t>(idle);
  const double gap = work_[from] - work_[to];
  const std::int64_t limit =
      options_.max_tokens > 0 ? options_.max_tokens : std::numeric_limits<std::int64_t>::max();
  const std::int64_t room_to = limit - tokens_[to];
  const std::int64_t room_from = limit - tokens_[from];
  double best = gap * (1 - 1e-9);  // of |gap - 2 (cost given - cost taken)|
  std::int32_t best_give = -1, best_take = -1;
  const auto consider = [&](std::int32_t give, std::int32_t take_back) {
    const auto g = static_cast<std::size_t>(give);
    double moved = costs_[g];
    std::int64_t moved_tokens = lengths_[g];
    if (take_back >= 0) {
      moved -= costs_[static_cast<std::size_t>(take_back)];
      moved_tokens -= lengths_[static_cast<std::size_t>(take_back)];
    }
    if (moved <= 0 || moved_tokens > room_to || -moved_tokens > room_from) return;
    const double left = std::abs(gap - 2 * moved);
    if (left < best) {
      best = left;
      best_give = give;
      best_take = take_back;
    }
  };
  for (const std::int32_t give : items_[from]) {
    consider(give, -1);
    // The one to take back whose cost is nearest to cost(give) - gap / 2, and its neighbours.
    const double wanted = costs_[static_cast<std::size_t>(give)] - gap / 2;
    const auto& theirs = items_[to];
    const auto at =
        std::lower_bound(theirs.begin(), theirs.end(), wanted, [&](std::int32_t item, double cost) {
          return costs_[static_cast<std::size_t>(item)] > cost;
        });
    if (at != theirs.end()) consider(give, *at);
    if (at != theirs.begin()) consider(give, *(at - 1));
  }
  if (best_give < 0) return false;
  move(best_give, idle);
  if (best_take >= 0) move(best_take, busy);
  return true;
}

void Balancer::move(std::int32_t item, std::int32_t to) {
  const auto at = static_cast<std::size_t>(item);
  const auto from = static_cast<std::size_t>(rank_of_[at]);
  const auto target = static_cast<std::size_t>(to);
  std::erase(items_[from], item);
  auto& items = items_[target];
  items.insert(std::lower_bound(items.begin(), items.end(), item,
                                [&](std::int32_t a, std::int32_t b) {
                                  return costs_[static_cast<std::size_t>(a)] >
                                         costs_[static_cast<std::size_t>(b)];
                                }),
               item);
  rank_of_[at] = to;
  work_[from] -= costs_[at];
  work_[target] += costs_[at];
  tokens_[from] -= lengths_[at];
  tokens_[target] += lengths_[at];
}

}  // namespace turbogr::balance
