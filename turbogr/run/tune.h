// `turbogr tune`: a small search for better settings. Each trial is a run of its own in the
// search's folder, and what it logged there is all that the search goes by; so a search that was
// killed goes on where it was when the same command is given again.
//
//   FOLDER/tune.json       the config and the options: the plan follows from them
//   FOLDER/trial-07/       a run folder; the checkpoints of trials left behind are removed
//   FOLDER/best.toml       the best config, ready to be trained
//   FOLDER/tune.html       the table and the curves
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/tune_plan.h"

namespace turbogr::run {

struct TuneOptions {
  std::int64_t trials = 20;
  std::uint64_t seed = 1;
  std::vector<std::string> vary;  // empty: all tuned_settings
  std::string folder;
};

// One trial as its run folder tells it.
struct Trial {
  std::int64_t number = 0;  // from 1; the first is the config as it was given
  Config config;
  std::vector<std::pair<double, double>> curve;  // epoch and validation figure, in order
  bool ended = false;                            // its run has come to its end
  std::string fault;                             // why it could not be trained

  // The best figure of the first so many epochs; minus infinity without one.
  double best(double epochs) const;
  double best() const;
  double epochs() const { return curve.empty() ? 0 : curve.back().first; }
};

// Returns the trials, best first, or fewer than all of the plan when a signal stopped it. Prints a
// line a trial and the table. Throws when the folder holds another search.
std::vector<Trial> tune(const Config& base, const TuneOptions& options, dist::Communicator& world);

// The table, best first.
std::string trials_table(const std::vector<Trial>& trials, const std::string& metric);

// One page, table and plot, that needs nothing beside itself.
std::string trials_page(const std::vector<Trial>& trials, const std::string& metric,
                        const std::string& title);

}  // namespace turbogr::run
