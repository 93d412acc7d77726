// How much a target's label counts in a task's loss and figures: 1, or a number of the event; 0,
// which masks it, where a condition on the event does not hold.
//
//   const LabelWeight weight(store, {"is_click", "!is_hate", "duration>=7000"}, "importance");
//   weight.of(event, signals);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "turbogr/data/label.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

class LabelWeight {
 public:
  LabelWeight() = default;  // 1 everywhere
  // Each of `where` is a signal of the store or a test of its numbers as of `data prepare --label`,
  // with ! in front where it must not hold. `by`: a column of numbers, none below 0; a missing one
  // is 0. Empty: 1. The store outlives it. Throws on anything else.
  LabelWeight(const Store& store, const std::vector<std::string>& where, const std::string& by);

  float of(std::int64_t event, std::uint32_t signals) const;

 private:
  struct Test {
    LabelTest test;
    std::span<const float> numbers;
  };
  void add_condition(const Store& store, const std::string& condition);

  std::uint32_t with_ = 0, without_ = 0;  // signals that the event must have, and must not
  std::vector<Test> tests_;
  std::span<const float> by_;
};

}  // namespace turbogr::data
