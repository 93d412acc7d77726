// Sequences of a ranking model: [prefix | history | targets] end to end, the prefix of the same
// length in all of them. Tokens are counted with the prefix, events (history and targets) without.
//
// B sequences, N tokens, c prefix tokens a sequence, N - B c events.
#pragma once

#include <cmath>
#include <cstdint>

#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/host_device.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/checks.h"

namespace turbogr::ops {

struct EventSequences {
  Offsets offsets;                          // [B + 1], of tokens
  std::int64_t num_prefix = 0;              // c
  View<const std::int64_t, 1> num_targets;  // [B]
  View<const std::int64_t, 1> times;        // [N - B c], of events, in seconds

  TGR_HD std::int64_t batch() const { return offsets.shape[0] - 1; }
  std::int64_t num_events() const { return times.shape[0]; }
  std::int64_t num_tokens() const { return num_events() + batch() * num_prefix; }
};

// Where one sequence lies.
struct EventSequence {
  std::int64_t token = 0;  // its first token, a prefix token where there is one
  std::int64_t event = 0;  // its first event
  std::int64_t history = 0;
  std::int64_t targets = 0;

  TGR_HD std::int64_t events() const { return history + targets; }
};

TGR_HD inline EventSequence event_sequence(const EventSequences& s, std::int64_t b) {
  const std::int64_t length = s.offsets(b + 1) - s.offsets(b);
  return {.token = s.offsets(b),
          .event = s.offsets(b) - b * s.num_prefix,
          .history = length - s.num_prefix - s.num_targets(b),
          .targets = s.num_targets(b)};
}

// The largest k with 60 k^2 <= the seconds from `time` to `now`, at most `last`; 0 when now is not
// later. In integers: a bucket's edge is where it says, for any gap.
TGR_HD inline std::int64_t square_root_bucket(std::int64_t now, std::int64_t time,
                                              std::int64_t last) {
  if (now <= time) return 0;
  const std::uint64_t gap = static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(time);
  const auto minutes = [](std::uint64_t k) { return 60 * k * k; };
  const auto most = static_cast<std::uint64_t>(last);
  if (gap >= minutes(most)) return last;
  auto k = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(gap) / 60));
  while (minutes(k) > gap) --k;
  while (minutes(k + 1) <= gap) ++k;
  return static_cast<std::int64_t>(k);
}

// The largest k with 60 e^k <= the seconds from `time` to `now`, at most `last`; 0 below e minutes
// and when now is not later. No whole number of seconds, up to 2^39, is so near an edge that
// rounding matters.
TGR_HD inline std::int64_t log_bucket(std::int64_t now, std::int64_t time, std::int64_t last) {
  if (now <= time) return 0;
  const std::uint64_t gap = static_cast<std::uint64_t>(now) - static_cast<std::uint64_t>(time);
  if (gap <= 60) return 0;
  const auto k = static_cast<std::int64_t>(std::log(static_cast<double>(gap) / 60));
  return k < last ? k : last;
}

// How the time table's rows share out the past.
enum class TimeBuckets : std::uint8_t { kSquareRoot, kLog };

TGR_HD inline std::int64_t time_bucket(TimeBuckets kind, std::int64_t now, std::int64_t time,
                                       std::int64_t last) {
  return kind == TimeBuckets::kLog ? log_bucket(now, time, last)
                                   : square_root_bucket(now, time, last);
}

// Throws when the sequences do not fit together.
inline void check_event_sequences(const Context& ctx, const char* op, const EventSequences& s) {
  TGR_CHECK(s.num_prefix >= 0, op, ": ", s.num_prefix,
            " prefix tokens a sequence; give at least 0");
  check_offsets(ctx, op, s.offsets, s.num_tokens());
  check_vector(op, "num_targets", s.num_targets, s.batch());
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t b = 0; b < s.batch(); ++b) {
    const std::int64_t length = s.offsets(b + 1) - s.offsets(b);
    TGR_CHECK(s.num_targets(b) >= 0 && s.num_prefix + s.num_targets(b) <= length, op, ": sequence ",
              b, " has ", length, " tokens for ", s.num_prefix, " of the prefix and ",
              s.num_targets(b), " targets");
  }
}

}  // namespace turbogr::ops
