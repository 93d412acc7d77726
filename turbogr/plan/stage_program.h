// The stages of some steps in the order that a schedule runs them, as a list to be timed: what
// train/step_order.h calls, written down.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/embedding/row_source.h"
#include "turbogr/train/step_order.h"

namespace turbogr::plan {

enum class Act : std::uint8_t {
  kPrepare,
  kFetch,
  kForward,
  kBackward,  // of one layer, whose dense gradients are on their way afterwards
  kReturn,
  kDenseSums,
  kDenseUpdate,
  kRowUpdate,
  kPlanRefresh,
  kRefresh,
  kStartAhead,  // the other lane may begin
  kJoin,
  kStepEnd,
};

struct StageCall {
  Act act;
  embedding::Lane lane;
  int step = 0;
  embedding::Part part = embedding::Part::kAll;
  bool rows_late = false;
};

// Each lane's calls in order. The n-th kStartAhead and kJoin of the computing lane enclose the n-th
// block of the other: it ends before begins[n + 1].
struct StageProgram {
  std::vector<StageCall> computing, ahead;
  std::vector<std::size_t> begins;  // [kStartAheads + 1], of `ahead`
};

struct ProgramOptions {
  train::StepOrderOptions order;
  int steps = 1;
  std::int64_t layers = 1;
  bool fetches_ahead = true;
};

// All steps but the last are computed; that one is prepared as far as the schedule goes.
StageProgram make_program(const ProgramOptions& options);

}  // namespace turbogr::plan
