// The stages of a training step by the names they have in traces and reports, and what the time of
// the thread that computes is worth in each.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace turbogr::train {

enum class StageKind : std::uint8_t {
  kCompute,
  kSparse,   // waiting for ids, rows or their gradients
  kDense,    // waiting for sums of dense gradients
  kInput,    // waiting for the next batch
  kOutside,  // no part of a training step
};

struct Stage {
  const char* name;
  StageKind kind;
  bool on_host = false;  // whatever the device
};

namespace stages {
inline constexpr Stage kRead = {"read batch", StageKind::kInput};
inline constexpr Stage kPositives = {"exchange positives", StageKind::kSparse, /*on_host=*/true};
inline constexpr Stage kDraw = {"draw negatives", StageKind::kCompute, /*on_host=*/true};
inline constexpr Stage kFindIds = {"find ids", StageKind::kCompute, /*on_host=*/true};
inline constexpr Stage kIds = {"exchange ids", StageKind::kSparse, /*on_host=*/true};
inline constexpr Stage kFetch = {"fetch rows", StageKind::kSparse};
inline constexpr Stage kCompute = {"forward and backward", StageKind::kCompute};
inline constexpr Stage kDenseSums = {"wait for dense gradients", StageKind::kDense};
inline constexpr Stage kDenseUpdate = {"update dense weights", StageKind::kCompute};
inline constexpr Stage kReturn = {"return row gradients", StageKind::kSparse};
inline constexpr Stage kRowUpdate = {"update rows", StageKind::kCompute};
inline constexpr Stage kJoin = {"wait for the next step's rows", StageKind::kSparse};
inline constexpr Stage kRefresh = {"fetch changed rows", StageKind::kSparse};
inline constexpr Stage kPlan = {"find changed rows", StageKind::kSparse, /*on_host=*/true};
inline constexpr Stage kEvaluate = {"evaluate", StageKind::kOutside};
inline constexpr Stage kSave = {"save", StageKind::kOutside};
}  // namespace stages

inline constexpr std::array kStages = {
    stages::kRead,        stages::kPositives, stages::kDraw,      stages::kFindIds,
    stages::kIds,         stages::kFetch,     stages::kCompute,   stages::kDenseSums,
    stages::kDenseUpdate, stages::kReturn,    stages::kRowUpdate, stages::kJoin,
    stages::kRefresh,     stages::kPlan,      stages::kEvaluate,  stages::kSave};

// Rows of a trace.
inline constexpr int kComputeLane = 0;
inline constexpr int kAheadLane = 1;
inline constexpr int kHostLane = 3;  // beside a GPU; 2 and 4 are embedding/host_rows.cc's

constexpr std::string_view text_of(StageKind kind) {
  switch (kind) {
    case StageKind::kCompute:
      return "compute";
    case StageKind::kSparse:
      return "sparse communication";
    case StageKind::kDense:
      return "dense communication";
    case StageKind::kInput:
      return "input";
    case StageKind::kOutside:
      break;
  }
  return "not training";
}

}  // namespace turbogr::train
