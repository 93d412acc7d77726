#include "bench/balance_replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "bench/lengths.h"
#include "turbogr/balance/balancer.h"
#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/length_table.h"

namespace turbogr::bench {
namespace {

constexpr std::int64_t kKuairandUsers = 27285;

// The table in random order, then in another, without end.
class Stream {
 public:
  Stream(const std::vector<std::int64_t>& table, const ReplayOptions& options)
      : lengths_(table), random_(options.seed), at_(table.size()) {
    for (std::int64_t& length : lengths_) length = std::min(length, options.cap);
  }
  std::int64_t peek() {
    if (at_ == lengths_.size()) {
      for (std::size_t left = lengths_.size(); left > 1; --left) {
        std::swap(lengths_[left - 1], lengths_[random_.below(left)]);
      }
      at_ = 0;
    }
    return lengths_[at_];
  }
  std::int64_t next() {
    const std::int64_t length = peek();
    ++at_;
    return length;
  }

 private:
  std::vector<std::int64_t> lengths_;
  PhiloxStream random_;
  std::size_t at_;
};

struct Step {
  std::vector<std::int64_t> lengths;
  std::vector<std::int32_t> rank_of;
};

Step fill(Stream& stream, const ReplayOptions& options, bool by_tokens) {
  Step step;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::int64_t tokens = 0;
    const std::int64_t count = options.budget / options.cap;
    for (std::int64_t i = 0; by_tokens ? tokens + stream.peek() <= options.budget : i < count;
         ++i) {
      step.lengths.push_back(stream.next());
      step.rank_of.push_back(rank);
      tokens += step.lengths.back();
    }
  }
  return step;
}

// What the steps of a strategy add up to.
class Figures {
 public:
  Figures(std::string strategy, const ReplayOptions& options) : options_(options) {
    result_.strategy = std::move(strategy);
  }
  void add(const Step& step, double plan_ms) {
    std::vector<double> work(static_cast<std::size_t>(options_.ranks));
    std::vector<std::int64_t> tokens(work.size());
    for (std::size_t i = 0; i < step.lengths.size(); ++i) {
      const auto rank = static_cast<std::size_t>(step.rank_of[i]);
      work.at(rank) += options_.cost.cost(step.lengths[i]);
      tokens[rank] += step.lengths[i];
    }
    const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
    TGR_CHECK(*most <= options_.budget, result_.strategy, ": ", *most, " tokens on a rank of ",
              options_.budget);
    result_.token_gap = std::max(result_.token_gap, *most - *least);
    waiting_.push_back(balance::waiting_share(work));
    result_.plan_ms += plan_ms / static_cast<double>(options_.steps);
    result_.plan_ms_max = std::max(result_.plan_ms_max, plan_ms);
  }
  ReplayResult result() {
    std::sort(waiting_.begin(), waiting_.end());
    result_.waiting_mean = std::accumulate(waiting_.begin(), waiting_.end(), 0.0) /
                           static_cast<double>(waiting_.size());
    const auto rank =
        static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(waiting_.size())) - 1);
    result_.waiting_p99 = waiting_[rank];
    return result_;
  }

 private:
  ReplayOptions options_;
  ReplayResult result_;
  std::vector<double> waiting_;
};

}  // namespace

std::vector<std::int64_t> length_table(const std::string& text) {
  return text == "kuairand27k" ? kuairand_table(kKuairandUsers) : data::read_length_table(text);
}

std::vector<ReplayResult> replay(const std::vector<std::int64_t>& table,
                                 const ReplayOptions& options) {
  TGR_CHECK(options.ranks >= 1 && options.steps >= 1, options.steps, " steps of ", options.ranks,
            " ranks; use at least 1 of each");
  TGR_CHECK(options.cap >= 1 && options.cap <= options.budget, "sequences of up to ", options.cap,
            " tokens do not fit a budget of ", options.budget, " a rank");
  Stream fixed_stream(table, options), token_stream(table, options);
  Figures fixed("fixed", options), token("token", options), again("reallocation", options);
  balance::Balancer balancer(
      {.cost = options.cost, .ranks = options.ranks, .max_tokens = options.budget});
  for (std::int64_t at = 0; at < options.steps; ++at) {
    fixed.add(fill(fixed_stream, options, /*by_tokens=*/false), 0);
    Step step = fill(token_stream, options, /*by_tokens=*/true);
    token.add(step, 0);
    const auto begin = std::chrono::steady_clock::now();
    balancer.plan(step.lengths, step.rank_of);
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    step.rank_of.assign(balancer.rank_of().begin(), balancer.rank_of().end());
    again.add(step, spent.count());
  }
  return {fixed.result(), token.result(), again.result()};
}

}  // namespace turbogr::bench
