// What negatives a step trains against, and which of it makes sense together.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::train {

enum class NegativeKind : std::uint8_t { kUniform, kPopularity, kInBatch, kMixed };
NegativeKind negative_kind_from_name(
    std::string_view name);  // uniform, popularity, in_batch, mixed

struct NegativeOptions {
  NegativeKind kind = NegativeKind::kUniform;
  std::int64_t count = 128;  // R
  bool shared = false;       // one set for all tokens of a batch, not one for each
  double alpha = 0.75;
  // Of kMixed: parts of uniform, popularity and in-batch; R is cut in proportion.
  std::array<std::int64_t, 3> mix = {};
  bool correction = true;
  // Uniform draws are of items that training has as targets. The others, which could only be
  // learnt to be wrong, are left to what their features say of them.
  bool trained_only = false;

  // What the loss makes of them. Sharing is for sets of tokens' own
  // (turbogr/ops/softmax/sampled_softmax.h).
  ops::NegativeSharing sharing = ops::NegativeSharing::kNone;
  std::int64_t sharing_factor = 1;
  bool half = false;        // read negatives' rows as f16, scaled row by row
  bool half_table = false;  // and keep the whole table so on the host, not only a step's rows
};

// Throws, with the reason, on what makes no sense together.
void check_negatives(const NegativeOptions& options);

// How many of R negatives each of uniform, popularity and in-batch gives. Throws when the mix asks
// for one that R is too small to have a draw of.
std::array<std::int64_t, 3> negative_parts(const NegativeOptions& options);

}  // namespace turbogr::train
