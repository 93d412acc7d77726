#include "turbogr/dist/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::dist {
namespace {

struct RanksPerMachine {
  int least = 0;
  int most = 0;
};

RanksPerMachine ranks_per_machine(const std::vector<int>& nodes) {
  std::map<int, int> per_node;
  for (const int node : nodes) ++per_node[node];
  const auto [least, most] =
      std::minmax_element(per_node.begin(), per_node.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  return {least->second, most->second};
}

}  // namespace

Topology make_topology(const std::vector<int>& nodes, int group_size, bool spread) {
  const int ranks = static_cast<int>(nodes.size());
  TGR_CHECK(ranks >= 1, "a topology of no ranks");
  if (group_size == 0) {
    const RanksPerMachine machine = ranks_per_machine(nodes);
    group_size = machine.least == machine.most ? machine.most : ranks;
  }
  TGR_CHECK(group_size >= 1 && ranks % group_size == 0, ranks,
            " ranks cannot be cut into groups of ", group_size,
            "; set dist.group to a divisor of the world's size, or 0");
  std::vector<int> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  // Of each rank: its number on its machine where ranks are spread, and the machine.
  std::map<int, int> seen;
  std::vector<std::pair<int, int>> keys;
  keys.reserve(nodes.size());
  for (const int node : nodes) keys.emplace_back(spread ? seen[node]++ : 0, node);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  Topology topology;
  topology.group_size = group_size;
  topology.group_of.resize(nodes.size());
  topology.place_of.resize(nodes.size());
  for (int i = 0; i < ranks; ++i) {
    const auto rank = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
    topology.group_of[rank] = i / group_size;
    topology.place_of[rank] = i % group_size;
  }
  return topology;
}

std::string uneven_machines(const std::vector<int>& nodes, int group_size) {
  if (group_size != 0 || nodes.empty()) return "";
  const RanksPerMachine machine = ranks_per_machine(nodes);
  if (machine.least == machine.most) return "";
  const std::string ranks = std::to_string(nodes.size());
  return "machines have " + std::to_string(machine.least) + " to " + std::to_string(machine.most) +
         " ranks, and dist.group = 0, the ranks of a machine, wants equally many: all " + ranks +
         " ranks are one group, whose item rows travel between machines; start equally many ranks "
         "on each, or set dist.group to a divisor of " +
         ranks;
}

std::vector<int> play_nodes(const std::vector<int>& nodes, int ranks_per_node) {
  if (ranks_per_node == 0) return nodes;
  TGR_CHECK(ranks_per_node > 0, "dist.ranks_per_node is ", ranks_per_node, "; use 0 or more");
  std::vector<int> played(nodes.size());
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    played[rank] = static_cast<int>(rank) / ranks_per_node;
  }
  return played;
}

SparseGroups make_sparse_groups(Communicator& world, const Topology& topology) {
  TGR_CHECK(static_cast<int>(topology.group_of.size()) == world.size(), "a topology of ",
            topology.group_of.size(), " ranks for a world of ", world.size());
  const auto rank = static_cast<std::size_t>(world.rank());
  const int group = topology.group_of[rank];
  const int place = topology.place_of[rank];
  SparseGroups groups;
  groups.topology = topology;
  groups.group = world.split(group, place, "group " + std::to_string(group));
  groups.replicas = world.split(place, group, "replicas of shard " + std::to_string(place));
  return groups;
}

}  // namespace turbogr::dist
