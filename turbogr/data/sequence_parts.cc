#include "turbogr/data/sequence_parts.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::data {

void SequenceMarks::mark(Offsets offsets, bool training) {
  const std::int64_t batch = offsets.shape[0] - 1;
  prefix_.clear();
  targets_.clear();
  predicting_ = offsets(batch);
  if (parts_.targets == 0) return;
  predicting_ = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = offsets(b + 1) - offsets(b);
    targets_.push_back(std::min(training ? parts_.targets : 1, length));
    prefix_.push_back(std::min(parts_.prefix, length - targets_.back()));
    predicting_ += targets_.back();
  }
}

View<const std::int64_t, 1> SequenceMarks::num_prefix() const {
  return {prefix_.data(), {static_cast<std::int64_t>(prefix_.size())}};
}

View<const std::int64_t, 1> SequenceMarks::num_targets() const {
  return {targets_.data(), {static_cast<std::int64_t>(targets_.size())}};
}

void SequenceMarks::list(Offsets offsets, View<std::int64_t, 1> tokens) const {
  TGR_ASSERT(tokens.shape[0] == predicting_);
  std::int64_t at = 0;
  for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
    const std::int64_t begin =
        targets_.empty() ? offsets(b) : offsets(b + 1) - targets_[static_cast<std::size_t>(b)];
    for (std::int64_t token = begin; token < offsets(b + 1); ++token) tokens(at++) = token;
  }
}

void SequenceMarks::weigh(Offsets offsets, float weight, View<float, 1> weights) const {
  const std::int64_t batch = offsets.shape[0] - 1;
  TGR_ASSERT(weights.shape[0] == offsets(batch));
  std::fill_n(weights.data, weights.shape[0], targets_.empty() ? weight : 0.0f);
  for (std::size_t b = 0; b < targets_.size(); ++b) {
    const std::int64_t end = offsets(static_cast<std::int64_t>(b) + 1);
    std::fill(weights.data + (end - targets_[b]), weights.data + end, weight);
  }
}

}  // namespace turbogr::data
