// A sequence is [prefix | history | targets]: its first and last tokens may play a part of their
// own (ops/attention/attention_types.h has the mask). Here is which tokens those are, and so which
// ones the loss counts.
//
// Without targets every token predicts the item after it. With targets only they do: a prefix token
// sees the whole history, so a history token would find in it the item it has to predict.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/view.h"

namespace turbogr::data {

struct SequenceParts {
  std::int64_t prefix = 0;   // first tokens of a sequence; 0: none
  std::int64_t targets = 0;  // last tokens of a sequence; 0: none, and a plain causal order
};

// The parts of the sequences of one batch. Targets come first: a sequence of n tokens has
// min(targets, n) of them and min(prefix, what is left) prefix tokens.
class SequenceMarks {
 public:
  explicit SequenceMarks(const SequenceParts& parts) : parts_(parts) {}

  // In training as above. Otherwise only the last token is asked for, so it is the one target and
  // the others are all history.
  void mark(Offsets offsets, bool training);

  // [B]; empty without targets.
  View<const std::int64_t, 1> num_prefix() const;
  View<const std::int64_t, 1> num_targets() const;

  // Tokens the loss counts.
  std::int64_t predicting() const { return predicting_; }
  void list(Offsets offsets, View<std::int64_t, 1> tokens) const;  // which those are
  // `weight` for each of them, 0 for the others.
  void weigh(Offsets offsets, float weight, View<float, 1> weights) const;

 private:
  SequenceParts parts_;
  std::vector<std::int64_t> prefix_;
  std::vector<std::int64_t> targets_;
  std::int64_t predicting_ = 0;
};

}  // namespace turbogr::data
