// How ranks are laid out for hierarchical sparse parallelism: T ranks in M groups of T / M, each
// group holding every table once. Ranks of a group sit on one machine when the layout allows it,
// unless they are to be spread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "turbogr/dist/communicator.h"

namespace turbogr::dist {

struct Topology {
  int group_size = 1;
  std::vector<int> group_of;  // [T]
  std::vector<int> place_of;  // [T], position inside the group: the shard

  int num_groups() const { return static_cast<int>(group_of.size()) / group_size; }
};

// `group_size` 0: the ranks of a machine, when every machine has equally many; else all ranks are
// one group. Ranks are dealt to groups machine by machine; with `spread` the first of every machine
// come first, then the second ones: groups have ranks of as many machines as they can, and replicas
// meet on one. Throws when the size does not divide.
Topology make_topology(const std::vector<int>& nodes, int group_size, bool spread = false);

// Why `group_size` 0 has made one group of all ranks of unequal machines, and what else could be
// done; empty where it has not.
std::string uneven_machines(const std::vector<int>& nodes, int group_size);

// Plays machines of `ranks_per_node` ranks each, whatever the machines are; 0: keeps `nodes`.
std::vector<int> play_nodes(const std::vector<int>& nodes, int ranks_per_node);

// A rank's two communicators: its group, which shares the shards, and its replicas, the ranks that
// hold the same shard in the other groups (ordered by group).
struct SparseGroups {
  Topology topology;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Communicator> replicas;
};
SparseGroups make_sparse_groups(Communicator& world, const Topology& topology);

}  // namespace turbogr::dist
