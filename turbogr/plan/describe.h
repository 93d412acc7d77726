// A machine's description from what was measured on it: steps of models, and collectives of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turbogr/plan/compute_cost.h"
#include "turbogr/plan/machine.h"

namespace turbogr::plan {

struct MeasuredStep {
  StepWork work;
  std::vector<std::int64_t> lengths;
  std::int64_t rows = 0;    // distinct rows touched
  SectionSeconds sections;  // row_update is zero: operators count it as embedding
  double seconds = 0;       // of the whole step
};

// What the steps tell replaces the figures of `base`, with `source` ("measured: ..."); all others
// keep theirs. Wanted of each kind of model: two steps with both biases whose sequences differ in
// length. A step without a bias, and one with tokens' own negatives, tell what only they can. On a
// CPU what is left of a step is the host's work on ids. Throws when two steps of a kind are alike.
GpuDescription describe(GpuDescription base, const std::vector<MeasuredStep>& steps,
                        const std::string& source);

// One collective of `ranks` ranks on `nodes` machines, `bytes` on each rank.
struct CollectiveTime {
  // exchange (of two ranks, both ways), all_reduce, all_gather or all_to_all
  std::string collective;
  int ranks = 0;
  int nodes = 1;
  std::int64_t bytes = 0;
  double seconds = 0;
};

// Alpha is the smallest message's time, the rate that between the two largest: in between links
// have bursts and protocols of their own. `times` ascend in bytes.
struct LinkFit {
  double alpha_us = 0;
  double gbs = 0;
};
LinkFit fit_link(std::span<const CollectiveTime> times);

// Links between hosts, of one machine and of several, from exchanges of two ranks, all-to-alls and
// sums, in place of the figures of `base`. Nothing where none was measured. Of ranks on CPUs these
// are the devices' links, too: those of `gpu` and of NICs are then replaced as well; of GPUs they
// keep the figures and sources that `gpu` and `base` have.
std::optional<NetworkDescription> describe_network(const std::vector<CollectiveTime>& times,
                                                   const std::string& source,
                                                   const NetworkDescription& base,
                                                   GpuDescription& gpu);

struct MeasuredMachine {
  GpuDescription gpu;
  std::optional<NetworkDescription> network;
  std::vector<CollectiveTime> collectives;
};

// As a file that gpu_description and network_description read.
std::string json_of(const MeasuredMachine& machine);

}  // namespace turbogr::plan
