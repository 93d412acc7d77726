// The published facts a synthetic world follows, as quantile tables. A preset is data only; the
// world (synth_world.h) and its users (synth_user.h) read it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace turbogr::data {

inline constexpr double kSynthRepeats = .03;  // of events, where nothing else is asked for

// A point of a monotone curve; between points curves are read by interpolation.
struct CurvePoint {
  double x;
  double y;
};

struct SynthPreset {
  std::string_view name;
  std::span<const CurvePoint> length;  // share of users -> events of a user (log-linear)
  std::span<const CurvePoint>
      popularity;  // share of shared items, popular first -> share of events
  std::span<const CurvePoint> click_logit;  // share of users by length -> mean log-odds of a click
  std::span<const CurvePoint> session_gap;  // share of session gaps -> seconds (log-linear)
  std::span<const CurvePoint>
      request_gap;                      // share of gaps inside a session -> seconds (log-linear)
  std::span<const double> hour_weight;  // events by hour of the day, 24 of them

  double click_logit_spread = 0;   // standard deviation between users of one length
  double request_share = 1;        // share of events that do not share the event before's time
  double session_mean = 1;         // sessions of a user of median length
  double events_per_shared = 1;    // events / items that several users may meet
  double single_share = 0;         // share of events on items met exactly once in the whole log
  std::int64_t items = 0;          // catalogue when the options name none; 0: from the ratios above
  std::int64_t begin_ms = 0;       // first millisecond of the log
  std::int64_t days = 1;           // whole days the log covers
  std::int64_t utc_offset_ms = 0;  // local time of the date and hour columns
};

// By name ("kuairand27k", "movielens"); throws on another, listing those known.
const SynthPreset& synth_preset(std::string_view name);

// Reads a curve at x in [0, 1]: linear in y, or in log y.
double curve_linear(std::span<const CurvePoint> curve, double x);
double curve_log(std::span<const CurvePoint> curve, double x);
// Mean of y over uniform x.
double curve_log_mean(std::span<const CurvePoint> curve);

}  // namespace turbogr::data
