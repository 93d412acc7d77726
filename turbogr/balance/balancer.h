// Shares sequences out to ranks so that no rank waits for another and none exceeds its memory.
// Longest first and Karmarkar-Karp differencing each give a plan; the better one is polished by
// moves and swaps between the ranks with the most and the least work. Many ranks are planned for in
// blocks: sequences are dealt to blocks of ranks evenly, then shared out inside each. The same
// input gives the same plan on every rank, so nothing needs to be exchanged to agree on it.
//
//   Balancer balancer({.cost = cost, .ranks = 8, .max_tokens = 65536});
//   balancer.plan(lengths, current);         // current[i]: the rank that has sequence i now
//   ... balancer.rank_of()[i] ...
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/balance/cost_model.h"

namespace turbogr::balance {

enum class Method : std::uint8_t { kBest, kLongestFirst, kKarmarkarKarp };

struct BalancerOptions {
  CostModel cost;
  int ranks = 1;
  std::int64_t max_tokens = 0;  // of a rank; 0: no limit
  Method method = Method::kBest;
  bool polish = true;
  int block = 32;  // ranks planned for together where there are more than two blocks; 0: all
};

class Balancer {
 public:
  explicit Balancer(const BalancerOptions& options);

  // Never a plan worse than `current`, which may be empty. Throws when neither a plan of its own
  // nor `current` keeps within max_tokens.
  void plan(std::span<const std::int64_t> lengths, std::span<const std::int32_t> current = {});

  std::span<const std::int32_t> rank_of() const { return rank_of_; }
  std::span<const double> work() const { return work_; }            // [ranks]
  std::span<const std::int64_t> tokens() const { return tokens_; }  // [ranks]

 private:
  struct Plan {
    std::vector<std::int32_t> rank_of;
    double most = 0;  // work of the busiest rank
    bool fits = false;
  };
  // The best of the plans; false when none keeps within max_tokens.
  bool find(std::span<const std::int64_t> lengths, std::span<const std::int32_t> current);
  void sort_by_cost(std::span<const std::int64_t> lengths);
  bool find_in_blocks(std::span<const std::int32_t> current);
  bool plan_block(int block, std::span<const std::int32_t> current, Plan& plan);
  void longest_first(Plan& plan);
  void karmarkar_karp(Plan& plan);
  void judge(Plan& plan);
  void take(const Plan& plan);
  void polish();
  bool ease(std::int32_t busy);
  bool exchange(std::int32_t busy, std::int32_t idle);
  void move(std::int32_t item, std::int32_t to);

  BalancerOptions options_;
  std::span<const std::int64_t> lengths_;
  std::vector<double> costs_;
  std::vector<std::int32_t> order_;  // by falling cost
  Plan first_, second_, current_;
  std::vector<std::int32_t> rank_of_;
  std::vector<double> work_;
  std::vector<std::int64_t> tokens_;
  std::vector<std::vector<std::int32_t>> items_;  // of each rank, by falling cost
  std::vector<Balancer> blocks_;
  std::vector<std::int32_t> turns_;               // the block of each turn of dealing: one a rank
  std::vector<std::vector<std::int32_t>> dealt_;  // items of each block
  std::vector<std::int64_t> block_lengths_;
  std::vector<std::int32_t> block_current_;
};

}  // namespace turbogr::balance
