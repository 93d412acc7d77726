// Keys that are set and that nothing in this run reads: those that another key switches off are
// refused, those that wait for more ranks are named in a warning, so that one file serves any
// number of ranks. A new key of the kind is a line of the table in idle_keys.cc.
#pragma once

#include <string>
#include <string_view>

#include "turbogr/run/config.h"

namespace turbogr::run {

struct RunLayout {
  int world = 1;
  int groups = 1;
  int machines = 1;      // played ones, where dist.ranks_per_node says so
  bool sharded = false;  // rows are asked of ranks
};

// Throws on what another key switches off; returns the warning about the rest, empty for none.
std::string check_idle_keys(const Config& config, const RunLayout& layout);

// A key that the ranking task refuses.
bool is_of_retrieval(std::string_view key);

}  // namespace turbogr::run
