#include "turbogr/ops/attention/attention_checks.h"

#include <algorithm>
#include <cmath>

namespace turbogr::ops {

void check_attention_scalars(const char* op, int heads, double alpha, double norm_length) {
  TGR_CHECK(heads >= 1, op, ": ", heads, " heads; wanted 1 or more");
  TGR_CHECK(std::isfinite(alpha), op, ": alpha is ", alpha, "; it must be a finite number");
  TGR_CHECK(norm_length > 0 && std::isfinite(norm_length), op, ": norm_length is ", norm_length,
            "; it must be above 0, for example the longest length allowed");
}

void check_head_width(const char* op, const char* name, std::int64_t width, int heads) {
  TGR_CHECK(width % heads == 0, op, ": ", name, " is ", width, " wide for ", heads,
            " heads; the width must be a multiple of the heads");
  const std::int64_t head_width = width / heads;
  TGR_CHECK(head_width >= 1 && head_width <= 256, op, ": a head of ", name, " is ", head_width,
            " wide; wanted 1 to 256, so change the width or the number of heads");
}

void check_attention_offsets(const char* op, Device device, Offsets offsets, std::int64_t tokens) {
  if (device == Device::kCpu) return check_offsets(op, offsets, tokens);
  TGR_CHECK(offsets.data != nullptr && offsets.shape[0] >= 1, op,
            ": offsets are empty; B sequences need B + 1 of them, and an empty batch needs [0]");
}

void check_attention_mask(const char* op, Device device, const AttentionMask& mask,
                          Offsets offsets) {
  const std::int64_t batch = offsets.shape[0] - 1;
  TGR_CHECK(mask.window >= 0, op, ": window is ", mask.window,
            "; it must be 0 (unlimited) or the number of tokens to look back");
  const auto check_counts = [&](const char* name, View<const std::int64_t, 1> counts) {
    if (counts.data == nullptr && counts.shape[0] == 0) return;
    check_vector(op, name, counts, batch);
    if (device != Device::kCpu) return;
    for (std::int64_t b = 0; b < batch; ++b) {
      TGR_CHECK(counts(b) >= 0, op, ": ", name, " of sequence ", b, " is ", counts(b),
                "; it must not be negative");
    }
  };
  TGR_CHECK(
      device == Device::kCpu || !mask.targets_together, op,
      ": targets at one place on a GPU, whose kernels count each one's own; use a CPU, or one "
      "target a sequence without targets_together");
  check_counts("num_prefix", mask.num_prefix);
  check_counts("num_targets", mask.num_targets);
  if (device != Device::kCpu) return;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = offsets(b + 1) - offsets(b);
    const std::int64_t prefix = mask.num_prefix.empty() ? 0 : mask.num_prefix(b);
    const std::int64_t targets = mask.num_targets.empty() ? 0 : mask.num_targets(b);
    // Each alone first: their sum may overflow.
    TGR_CHECK(prefix <= length && targets <= length - prefix, op, ": sequence ", b, " has ", length,
              " tokens but a prefix of ", prefix, " and ", targets,
              " targets; together they must fit in it");
  }
}

void check_position_size(const char* op, Device device, std::int64_t size,
                         const AttentionMask& mask, Offsets offsets) {
  TGR_CHECK(size % 2 == 1, op, ": the position table has ", size,
            " weights; sequences of up to S tokens need 2 * S - 1, an odd number");
  if (device != Device::kCpu) return;
  const std::int64_t max_length = (size + 1) / 2;
  for (std::int64_t b = 0; b + 1 < offsets.shape[0]; ++b) {
    const SequenceMask sequence = sequence_mask(mask, offsets, b);
    const std::int64_t places = std::min(sequence.length, sequence.last_place + 1);
    TGR_CHECK(places <= max_length, op, ": sequence ", b, " has ", places,
              mask.targets_together ? " places" : " tokens", " and the position table serves ",
              max_length, "; cut the sequence or give a table of ", 2 * places - 1, " weights");
  }
}

}  // namespace turbogr::ops
