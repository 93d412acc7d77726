// Where the time of a run's ranks went, by stage, from the trace it left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/train/stages.h"

namespace turbogr::run {

// Shares of the time from the end of the first step to the end of the last, less evaluations and
// saves: the mean over ranks.
struct Timeline {
  struct Row {
    std::string name;
    train::StageKind kind;
    double share = 0;   // of the thread that computes
    double bubble = 0;  // of that thread, idle just before the stage
    double hidden = 0;  // of the lane beside it: costs nobody anything
  };
  std::vector<Row> stages;  // in the order of a step
  int ranks = 0;
  std::int64_t steps = 0;
  double seconds = 0;

  double share_of(train::StageKind kind) const;
  double bubbles() const;
};

// Throws when the file is not a trace of a run with two steps at least.
Timeline read_timeline(const std::string& trace_path);
std::string timeline_text(const Timeline& timeline);  // a table, a line a stage

}  // namespace turbogr::run
