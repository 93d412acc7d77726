// Samples of the ranking task: targets to be judged together, and the history before them. A sample
// is [prefix | history | targets]; how targets are put together is the builder's choice:
//
//   blocks    a user's events in blocks of m, cut anew where a split begins
//   requests  events of one user at the same time: what was shown together
//   last      one sample a user: the last m events of the split
//   anchors   every event with an anchor signal alone; of the events before it the last n with each
//             action, merged in order
//
// A history is all that came before the sample's first target, whatever split it belongs to, or
// before the sample's split (evaluation only): its last max_history events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {

enum class SampleBuilder : std::uint8_t { kBlocks, kRequests, kLast, kAnchors };
SampleBuilder sample_builder_from_name(std::string_view name);  // throws on another

// Without shuffling: user by user, or in time: windows of so many seconds after each other, inside
// of one user by user.
enum class SampleOrder : std::uint8_t { kUser, kTime };

struct AnchorOptions {
  std::vector<std::string> signals;  // an event with any of them is an anchor; empty: all are
  std::vector<std::string> actions;  // whose last events make the history
  std::int64_t per_action = 1362;    // of each
  std::int64_t lookback = 20000;     // events before the anchor that are looked at
  std::int64_t least_history = 0;    // earlier events that an anchor must have
};

struct SampleOptions {
  Holdout holdout;
  Split split = Split::kTrain;
  SampleBuilder builder = SampleBuilder::kBlocks;
  std::int64_t targets = 8;  // m of blocks and last; `test` and `validation_test` keep so many back
  std::int64_t prefix = 0;   // tokens before the history
  std::int64_t max_history = 200;
  bool history_before_split = false;  // evaluation splits: a user's targets share one history
  bool targets_at_last_time = false;  // targets stand at the time of the last event before them
  SampleOrder order = SampleOrder::kUser;
  std::int64_t window_seconds = 0;  // of time order; 0: sample by sample
  // Of windows: a window's last samples, where they are fewer than so many, are left out.
  std::int64_t window_batch = 1;
  AnchorOptions anchors;
  // Evaluation splits: the samples of so many users at most, drawn by the seed; 0: all.
  std::int64_t max_users = 0;
  std::uint64_t user_seed = 0;
};

// first_event of a window is the first target, length counts the prefix, the history and the
// targets: what a BatchPlanner wants to know.
struct Samples {
  std::vector<Window> windows;
  std::vector<std::int32_t> num_targets;
  std::vector<std::int64_t> history_ends;  // the event after it; empty: the first target
  std::int64_t prefix = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(windows.size()); }
  std::int64_t history(std::size_t sample) const {
    return windows[sample].length - prefix - num_targets[sample];
  }
  std::int64_t history_end(std::size_t sample) const {
    return history_ends.empty() ? windows[sample].first_event : history_ends[sample];
  }
  std::int64_t targets() const;       // of all samples
  std::int64_t most_targets() const;  // of one
};

Samples make_samples(const Store& store, const SampleOptions& options);

// The history of a sample: events of the store, in order. A stretch, or picked by the signals.
class SampleHistory {
 public:
  SampleHistory(const Store& store, const SampleOptions& options);
  // Of the user whose events begin at `begin`, before event `end`. Replaces `events`.
  void read(std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& events) const;
  std::int64_t count(std::int64_t begin, std::int64_t end) const;  // how many these are

 private:
  const Store& store_;
  std::int64_t max_history_;
  bool picks_;
  std::int64_t per_action_, lookback_;
  std::vector<std::uint32_t> masks_;  // of each action
};

}  // namespace turbogr::data
