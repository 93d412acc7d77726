// Judging without a model, by counting: how often an item, a user and every value of an event's
// feature came with a task's signal in training. What a ranking model must beat to be worth its
// training.
//
//   const CountedRates rates(store, training_samples, layout);
//   rates.judge(test_samples, task, CountedBy::kAll).figures().auc
//
// A rate is (positives + s mean) / (events + s): s events at the task's mean stand in for those
// that were not seen, 5 for users and 20 for items and values. An event counts as much as its
// label. Several rates meet as the sum of what each adds to the mean's log-odds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/samples/samples.h"
#include "turbogr/data/store.h"
#include "turbogr/eval/click_metrics.h"

namespace turbogr::eval {

enum class CountedBy : std::uint8_t { kItem, kAll };

class CountedRates {
 public:
  // Counts the targets of `training`. Of events the categories that some feature of the layout
  // reads, alone or in a cross. The store and the layout outlive it.
  CountedRates(const data::Store& store, const data::Samples& training,
               const data::SampleLayout& layout);

  // The targets of `samples` by a task that asks for signals.
  ClickMetrics judge(const data::Samples& samples, std::size_t task, CountedBy by,
                     GroupBy groups = GroupBy::kUser) const;
  // "item", "user", "tab": what kAll counts.
  std::vector<std::string> names() const;

 private:
  struct Count {
    double positives = 0, events = 0;
  };
  // Codes of something that targets have one of, and the counts of each code in each task.
  struct Factor {
    std::string name;
    data::FeatureSource source;
    double prior = 20;
    std::vector<Count> counts;  // [codes + 1, K]
  };
  struct Target {
    std::int64_t sample, user, item, event;
    std::uint32_t signals;
  };
  // Of a task: whether the target is positive, and what that counts.
  struct Labelled {
    bool positive;
    double weight;
  };
  Labelled label_of(const Target& target, std::size_t task) const;
  void add_factor(std::string_view source, double prior);
  static std::int64_t code_of(const Factor& factor, const Target& target);
  double added_log_odds(const Factor& factor, std::int64_t code, std::size_t task) const;
  // Calls body(target) for every one.
  template <class Body>
  void for_targets(const data::Samples& samples, const Body& body) const;

  const data::Store& store_;
  const data::SampleLayout& layout_;
  std::vector<Factor> factors_;  // the item's first
  std::vector<Count> all_;       // [K]
};

}  // namespace turbogr::eval
