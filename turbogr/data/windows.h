// Samples of a store: for each user the stretches of history a model is shown. A window of n tokens
// starting at event e has inputs e .. e+n-1 and targets e+1 .. e+n, so it touches n+1 events.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "turbogr/data/holdout.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

// What becomes of a history longer than the longest window: its end alone, or all of it, cut into
// windows from the end backwards (so that only a user's oldest window is short).
enum class LongHistory : std::uint8_t { kLast, kWindows };
LongHistory long_history_from_name(std::string_view name);  // last, windows; throws on another

struct Window {
  std::int64_t first_event;  // in the store
  std::int32_t length;       // tokens, at least 1
  std::int32_t user;
};

struct WindowOptions {
  Holdout holdout;
  Split split = Split::kTrain;
  std::int64_t max_length = 200;  // S
  LongHistory long_history = LongHistory::kLast;
  // Evaluation splits: so many users at most, drawn by the seed; 0: all. A user's lot depends on
  // the seed alone, so that every evaluation of a run asks the same users.
  std::int64_t max_users = 0;
  std::uint64_t user_seed = 0;
};

// Longest window: positions have this many bits in row keys.
inline constexpr int kPositionBits = 24;

// In the order of users, a user's oldest window first. Evaluation splits have one window a user,
// which ends just before the target.
std::vector<Window> make_windows(const Store& store, const WindowOptions& options);

}  // namespace turbogr::data
