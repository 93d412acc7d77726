// A world of raters like the one that the MLPerf inference benchmark DLRMv3 generates for itself:
// items belong to 128 categories and have a rating of their own, a user has four categories, and
// what is liked depends on the item, on which of the four its category is, and on the step.
//
// There are a base and 100 steps. In each a user rates about 100 items; in the last ten, which are
// for judging, 2,048 candidates, of which about 100 join the later history. All is a pure function
// of (options, user).
//
//   Dlrmv3World world({.users = 1000});
//   Dlrmv3History history;
//   world.generate(17, history);
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace turbogr::data {

struct Dlrmv3Options {
  std::int64_t users = 1000;
  std::int64_t items = 0;  // 0: 200 a user, as published, and at least 12,800
  std::uint64_t seed = 0;
};

// One user's events in order; vectors keep their memory from user to user.
struct Dlrmv3History {
  std::vector<std::uint32_t> items;  // of the catalogue, from 0
  std::vector<std::int32_t> steps;   // kBase, then 0 to kSteps - 1
  std::vector<float> ratings;        // 1 to 5
  std::vector<float> chances;        // that the rating is at least kLiked
  std::vector<std::uint8_t> joins;   // 1: it is history to later steps

  void clear();
};

class Dlrmv3World {
 public:
  static constexpr std::int64_t kCategories = 128;
  static constexpr std::int32_t kBase = -1, kSteps = 100, kFirstJudged = 90;
  static constexpr std::int64_t kCandidates = 2048;
  static constexpr double kLiked = 3.5;

  explicit Dlrmv3World(const Dlrmv3Options& options);

  std::int64_t num_users() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  std::int64_t num_items() const { return items_of_category_ * kCategories; }
  std::int64_t num_events() const { return offsets_.back(); }
  std::int64_t offset(std::int64_t user) const { return offsets_[static_cast<std::size_t>(user)]; }
  std::int64_t category(std::uint32_t item) const { return item / items_of_category_; }
  int item_rating(std::uint32_t item) const;  // 1 to 5

  void generate(std::int64_t user, Dlrmv3History& history) const;

  // Of the candidates of the judged steps, by who knows their chances: over all, and the mean of
  // each user's each step. Estimated on some of the users.
  struct BayesAuc {
    double all = 0, by_request = 0;
  };
  BayesAuc bayes_auc() const;

 private:
  struct Lengths;
  Lengths lengths_of(std::int64_t user) const;

  std::uint64_t seed_;
  std::int64_t items_of_category_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace turbogr::data
