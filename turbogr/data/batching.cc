#include "turbogr/data/batching.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "turbogr/core/check.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/philox.h"

namespace turbogr::data {
namespace {

constexpr std::uint64_t kShuffleStream = std::uint64_t{0x73687566} << 32;

}  // namespace

BatchBudget::BatchBudget(std::int64_t limit, bool by_tokens)
    : limit_(static_cast<double>(limit)), by_tokens_(by_tokens) {
  TGR_CHECK(limit > 0, "a batch budget of ", limit, "; it must be above zero");
}

BatchBudget BatchBudget::samples(std::int64_t count) { return {count, /*by_tokens=*/false}; }
BatchBudget BatchBudget::tokens(std::int64_t count, std::int64_t extra) {
  BatchBudget budget(count, /*by_tokens=*/true);
  budget.extra_ = extra;
  return budget;
}

std::string BatchBudget::text() const {
  std::ostringstream text;
  text << std::setprecision(15) << limit_ << (by_tokens_ ? " tokens" : " samples");
  return text.str();
}

std::string LoaderState::to_json() const {
  return nlohmann::json{{"seed", seed}, {"epoch", epoch}, {"window", window}, {"windows", windows}}
      .dump();
}

LoaderState LoaderState::from_json(const std::string& text) {
  try {
    const auto json = parse_json(text);
    return {.seed = whole_number<std::uint64_t>(json.at("seed")),
            .epoch = whole_number<std::int64_t>(json.at("epoch")),
            .window = whole_number<std::int64_t>(json.at("window")),
            .windows = whole_number<std::int64_t>(json.at("windows"))};
  } catch (const nlohmann::json::exception&) {
    detail::throw_error("a loader position cannot be read from '", text,
                        "': it is not what this program writes; go on from another checkpoint");
  }
}

BatchPlanner::BatchPlanner(std::span<const Window> windows, const PlanOptions& options)
    : windows_(windows), options_(options) {
  TGR_CHECK(options.world >= 1, "a plan for ", options.world, " ranks; there is at least one");
  TGR_CHECK(windows.size() < std::numeric_limits<std::uint32_t>::max(), windows.size(),
            " windows; the loader numbers them with 32 bits, so use longer windows or parts");
  TGR_CHECK(options.sort_batches == 0 || !options.budget.by_tokens(), "chunks of ",
            options.sort_batches, " batches of ", options.budget.text(),
            " to sort; batches are of equal counts then, so give samples");
  state_ = {.seed = options.seed,
            .epoch = 0,
            .window = 0,
            .windows = static_cast<std::int64_t>(windows.size())};
  order_.resize(windows.size());
  std::iota(order_.begin(), order_.end(), 0u);
  bounds_.resize(static_cast<std::size_t>(options.world) + 1);

  std::int64_t shortest = std::numeric_limits<std::int32_t>::max();
  std::int64_t longest = 0;
  std::int64_t total = 0;
  for (const Window& window : windows) {
    shortest = std::min<std::int64_t>(shortest, window.length);
    longest = std::max<std::int64_t>(longest, window.length);
    total += window.length;
  }
  if (windows.empty()) return;
  const BatchBudget& budget = options_.budget;
  TGR_CHECK(budget.cost_of(longest) <= budget.limit(), "a window of ", longest,
            " tokens does not fit a batch of ", budget.text(),
            "; raise the budget or shorten the windows");
  // Cost a token never falls with length, except where samples are counted: then it is the longest
  // that fill a batch best.
  const double per_token = std::min(budget.cost_of(shortest) / static_cast<double>(shortest),
                                    budget.cost_of(longest) / static_cast<double>(longest));
  const double ranks = options.whole_step ? options.world : 1;
  max_samples_ = static_cast<std::int64_t>(
      std::min(budget.limit() / budget.cost_of(shortest), static_cast<double>(windows.size())));
  max_tokens_ = static_cast<std::int64_t>(std::min(
      std::ceil(budget.limit() / ranks) / per_token * (1 + 1e-9), static_cast<double>(total)));
}

void BatchPlanner::check(const LoaderState& state) const {
  TGR_CHECK(state.windows == state_.windows, "a position in data of ", state.windows,
            " windows cannot be used with ", state_.windows,
            "; the store, the hold-out or the window length has changed");
  TGR_CHECK(state.epoch >= 0 && state.window >= 0 && state.window <= state.windows,
            "a position at window ", state.window, " of ", state.windows, " in epoch ", state.epoch,
            " is no position");
}

void BatchPlanner::restore(const LoaderState& state) {
  check(state);
  state_ = state;
  shuffled_epoch_ = -1;
}

void BatchPlanner::shuffle_epoch() {
  if (shuffled_epoch_ == state_.epoch) return;
  // From the identity, so that the order depends on nothing but seed and epoch.
  std::iota(order_.begin(), order_.end(), 0u);
  shuffled_epoch_ = state_.epoch;
  if (!options_.shuffle) return;
  PhiloxStream random(state_.seed, kShuffleStream + static_cast<std::uint64_t>(state_.epoch));
  for (std::size_t left = order_.size(); left > 1; --left) {
    std::swap(order_[left - 1], order_[random.below(left)]);
  }
  if (options_.sort_batches > 0) sort_in_chunks(random);
}

void BatchPlanner::sort_in_chunks(PhiloxStream& random) {
  const auto batch = static_cast<std::size_t>(options_.budget.limit());
  const std::size_t all = order_.size() / batch + 1;
  const std::size_t chunk = batch * std::min(all, static_cast<std::size_t>(options_.sort_batches));
  const auto length = [&](std::uint32_t i) -> std::int64_t {
    return options_.length_of ? options_.length_of(windows_[i]) : windows_[i].length;
  };
  for (std::size_t first = 0; first < order_.size(); first += chunk) {
    const std::size_t end = std::min(order_.size(), first + chunk);
    std::stable_sort(order_.begin() + static_cast<std::ptrdiff_t>(first),
                     order_.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::uint32_t a, std::uint32_t b) { return length(a) < length(b); });
  }
  const auto batch_at = [&](std::size_t index) {
    return order_.begin() + static_cast<std::ptrdiff_t>(index * batch);
  };
  for (std::size_t left = order_.size() / batch; left > 1; --left) {
    const std::size_t other = random.below(left);
    if (other + 1 == left) continue;  // a batch does not change places with itself
    std::swap_ranges(batch_at(left - 1), batch_at(left), batch_at(other));
  }
}

bool BatchPlanner::fill(double limit) {
  std::int64_t at = state_.window;
  bounds_[0] = at;
  for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
    double used = 0;
    while (at < state_.windows) {
      used += options_.budget.cost_of(windows_[order_[static_cast<std::size_t>(at)]].length);
      if (used > limit) break;
      ++at;
    }
    bounds_[rank + 1] = at;
  }
  return at == state_.windows;
}

void BatchPlanner::fill_whole_step() {
  const std::int64_t begin = state_.window;
  std::int64_t at = begin;
  double used = 0;
  while (at < state_.windows) {
    used += options_.budget.cost_of(windows_[order_[static_cast<std::size_t>(at)]].length);
    if (used > options_.budget.limit()) break;
    ++at;
  }
  for (std::size_t rank = 0; rank < bounds_.size(); ++rank) {
    bounds_[rank] = begin + (at - begin) * static_cast<std::int64_t>(rank) / options_.world;
  }
}

// Sorts the step's windows by their new ranks, each rank's in the order they had.
void BatchPlanner::reallocate() {
  const auto begin = static_cast<std::size_t>(bounds_.front());
  const auto end = static_cast<std::size_t>(bounds_.back());
  lengths_.resize(end - begin);
  rank_of_.resize(end - begin);
  for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
    for (auto at = static_cast<std::size_t>(bounds_[rank]);
         at < static_cast<std::size_t>(bounds_[rank + 1]); ++at) {
      lengths_[at - begin] = windows_[order_[at]].length;
      rank_of_[at - begin] = static_cast<std::int32_t>(rank);
    }
  }
  options_.reallocate(lengths_, max_tokens_, rank_of_);
  sorted_.assign(order_.begin() + static_cast<std::ptrdiff_t>(begin),
                 order_.begin() + static_cast<std::ptrdiff_t>(end));
  std::vector<std::int64_t> next(bounds_.size(), 0);
  for (const std::int32_t rank : rank_of_) {
    TGR_CHECK(rank >= 0 && rank < options_.world, "a window went to rank ", rank, " of ",
              options_.world);
    ++next[static_cast<std::size_t>(rank) + 1];
  }
  for (std::size_t rank = 1; rank < bounds_.size(); ++rank) {
    bounds_[rank] = bounds_[rank - 1] + next[rank];
  }
  std::copy(bounds_.begin(), bounds_.end(), next.begin());
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    order_[static_cast<std::size_t>(next[static_cast<std::size_t>(rank_of_[i])]++)] = sorted_[i];
  }
}

bool BatchPlanner::next_step() {
  if (state_.window == state_.windows) {
    ++state_.epoch;
    state_.window = 0;
    return false;
  }
  shuffle_epoch();
  if (options_.whole_step) {
    fill_whole_step();
  } else if (fill(options_.budget.limit()) && options_.world > 1) {
    // What is left would fill the first ranks and leave the others idle: look for the least budget
    // that still takes all of it.
    double enough = options_.budget.limit();
    double too_little = 0;
    for (int halving = 0; halving < 40; ++halving) {
      const double middle = (enough + too_little) / 2;
      (fill(middle) ? enough : too_little) = middle;
    }
    fill(enough);
  }
  if (options_.reallocate && options_.world > 1) reallocate();
  state_.window = bounds_.back();
  return true;
}

}  // namespace turbogr::data
