// Which windows make up which batch of which rank: an order drawn from (seed, epoch), filled into
// batches up to a budget. Every rank computes the same plan, so nothing needs to be exchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/philox.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

// How much one rank's batch may hold. Cost of a window of n tokens: 1 or n.
class BatchBudget {
 public:
  static BatchBudget samples(std::int64_t count);
  // `extra`: tokens that come with every window, beside its own.
  static BatchBudget tokens(std::int64_t count, std::int64_t extra = 0);

  double limit() const { return limit_; }
  double cost_of(std::int64_t length) const {
    return by_tokens_ ? static_cast<double>(length + extra_) : 1.0;
  }
  bool by_tokens() const { return by_tokens_; }
  std::string text() const;  // "4096 tokens", for messages

 private:
  BatchBudget(std::int64_t limit, bool by_tokens);
  double limit_;
  bool by_tokens_;
  std::int64_t extra_ = 0;
};

// Where a run stands in its data. Small enough for every checkpoint; valid for any number of ranks
// and any budget, because it counts windows, not batches.
struct LoaderState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t window = 0;   // of the epoch's order: the first that no rank has had yet
  std::int64_t windows = 0;  // in an epoch; tells a position in other data

  bool operator==(const LoaderState&) const = default;
  std::string to_json() const;
  static LoaderState from_json(const std::string& text);  // throws on anything else
};

struct PlanOptions {
  BatchBudget budget = BatchBudget::samples(128);
  int world = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Samples of like length together, which also are often one person's: a shuffled epoch is sorted
  // by length inside chunks of so many batches, which then come in an order of their own; what
  // fills no batch stays last. 0: not. Batches are counted, so a budget of tokens has none.
  std::int64_t sort_batches = 0;
  std::function<std::int64_t(const Window&)> length_of;  // to sort by; empty: the window's own
  // The budget is that of a step over all ranks, which share its windows evenly by number: a step
  // holds the same windows however many ranks there are.
  bool whole_step = false;
  // Shares a step's windows out again: given their lengths, the tokens a rank has room for and the
  // rank that has each, it changes the ranks. Every rank must come to the same answer. Empty: they
  // stay.
  std::function<void(std::span<const std::int64_t> lengths, std::int64_t max_tokens,
                     std::span<std::int32_t> rank_of)>
      reallocate;
};

class BatchPlanner {
 public:
  // `windows` outlives the planner. Throws when a single window exceeds the budget.
  BatchPlanner(std::span<const Window> windows, const PlanOptions& options);

  const LoaderState& state() const { return state_; }
  void check(const LoaderState& state) const;  // throws when it is a position in other data
  void restore(const LoaderState& state);

  // Plans one step for all ranks: rank r has the windows order()[bounds()[r]] up to
  // order()[bounds()[r + 1]], and moves on behind them. The last step of an epoch is shared out
  // evenly; with fewer windows than ranks some have none. Returns false, once, at the end of an
  // epoch, and stands at the start of the next.
  bool next_step();
  std::span<const std::uint32_t> order() const { return order_; }
  std::span<const std::int64_t> bounds() const { return bounds_; }

  // The most one rank's batch can hold; what buffers need.
  std::int64_t max_batch_samples() const { return max_samples_; }
  std::int64_t max_batch_tokens() const { return max_tokens_; }

 private:
  void shuffle_epoch();
  void sort_in_chunks(PhiloxStream& random);
  // Fills ranks one after the other up to `limit`; true when that reaches the end of the epoch.
  bool fill(double limit);
  void fill_whole_step();
  void reallocate();

  std::span<const Window> windows_;
  PlanOptions options_;
  LoaderState state_;
  std::int64_t shuffled_epoch_ = -1;
  std::vector<std::uint32_t> order_;
  std::vector<std::int64_t> bounds_;
  std::vector<std::int64_t> lengths_;  // of the step, for reallocate
  std::vector<std::int32_t> rank_of_;
  std::vector<std::uint32_t> sorted_;
  std::int64_t max_samples_ = 0;
  std::int64_t max_tokens_ = 0;
};

}  // namespace turbogr::data
