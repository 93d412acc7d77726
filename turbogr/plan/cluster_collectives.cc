#include "turbogr/plan/cluster_collectives.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace turbogr::plan {

ClusterCollectives::ClusterCollectives(const SimulationSetup& setup)
    : network_(setup.gpu, setup.network, setup.nodes, setup.disturbances.slow_link),
      clock_(static_cast<int>(setup.nodes.size()), setup.traced),
      groups_(members_of(setup.topology)),
      replicas_(static_cast<std::size_t>(setup.topology.group_size)),
      everybody_(setup.nodes.size()) {
  exact_replicas_ = groups_.size() > 1 && setup.replicas == embedding::ReplicaMode::kExact;
  std::iota(everybody_.begin(), everybody_.end(), 0);
  for (std::size_t place = 0; place < replicas_.size(); ++place) {
    for (const auto& group : groups_) replicas_[place].push_back(group[place]);
  }
  places_.assign(setup.topology.place_of.begin(), setup.topology.place_of.end());
  machine_ranks_ = static_cast<std::size_t>(setup.machine_ranks);
  if (machine_ranks_ == 0) return;
  machines_of_.resize(setup.nodes.size());
  for (const std::vector<int>& group : groups_) {
    for (std::size_t first = 0; first < group.size(); first += machine_ranks_) {
      machines_.emplace_back(group.begin() + static_cast<std::ptrdiff_t>(first),
                             group.begin() + static_cast<std::ptrdiff_t>(first + machine_ranks_));
      for (const int rank : machines_.back()) {
        machines_of_[static_cast<std::size_t>(rank)] = machines_.size() - 1;
      }
    }
    for (std::size_t place = 0; place < machine_ranks_; ++place) {
      std::vector<int>& rail = rails_.emplace_back();
      for (std::size_t at = place; at < group.size(); at += machine_ranks_) {
        rail.push_back(group[at]);
      }
    }
  }
}

std::int64_t ClusterCollectives::Ids::asked(int rank, std::size_t place) const {
  return ids.asked_by(rank)[place] - (but == nullptr ? 0 : but->asked_by(rank)[place]);
}

std::int64_t ClusterCollectives::Ids::merged(std::size_t machine, std::size_t place) const {
  return ids.merged_by(machine)[place] - (but == nullptr ? 0 : but->merged_by(machine)[place]);
}

std::int64_t ClusterCollectives::Ids::owned(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return ids.owned[r] - (but == nullptr ? 0 : but->owned[r]);
}

void ClusterCollectives::together(const train::Stage& stage, Lane lane,
                                  const std::vector<std::vector<int>>& teams, const Body& body) {
  const std::span<double> times = clock_.times(lane);
  const std::vector<double> begin(times.begin(), times.end());
  std::vector<double> waiting(begin.size(), 0);
  std::vector<double> own;
  for (const std::vector<int>& members : teams) {
    if (members.size() < 2) continue;
    own.clear();
    for (const int rank : members) own.push_back(begin[static_cast<std::size_t>(rank)]);
    const double last = *std::max_element(own.begin(), own.end());
    body(members, own);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto rank = static_cast<std::size_t>(members[i]);
      times[rank] = own[i];
      waiting[rank] = std::max(0.0, std::min(last, own[i]) - begin[rank]);
    }
  }
  clock_.passed(stage, lane, begin, waiting);
}

void ClusterCollectives::exchange(const train::Stage& stage, Lane lane,
                                  const std::vector<std::vector<int>>& teams,
                                  const Counts& to_owner, double bytes, Way way, Memory memory) {
  together(stage, lane, teams, [&](const std::vector<int>& members, std::span<double> times) {
    const auto bytes_of = [&](std::size_t from, std::size_t to) {
      return static_cast<std::int64_t>(static_cast<double>(to_owner(members, from, to)) * bytes);
    };
    std::vector<std::int64_t> send(members.size()), receive(members.size());
    const auto round_of = [&](std::size_t i) {
      for (std::size_t peer = 0; peer < members.size(); ++peer) {
        send[peer] = bytes_of(i, peer);
        receive[peer] = bytes_of(peer, i);
      }
      if (way == Way::kFromOwners) std::swap(send, receive);
      return dist::all_to_all_round(send, receive);
    };
    network_.run_round(members, round_of, times, memory);
  });
}

void ClusterCollectives::group_exchange(const train::Stage& stage, Lane lane, const Ids& ids,
                                        double bytes, Way way, Memory memory) {
  const auto asked = [&](const std::vector<int>& members, std::size_t from, std::size_t to) {
    return ids.asked(members[from], to);
  };
  exchange(stage, lane, groups_, asked, bytes, way, memory);
}

void ClusterCollectives::hop_inside(const train::Stage& stage, Lane lane, const Ids& ids,
                                    double bytes, Way way, Memory memory) {
  const auto asked = [&](const std::vector<int>& members, std::size_t from, std::size_t to) {
    std::int64_t sum = 0;
    for (std::size_t place = to; place < groups_[0].size(); place += machine_ranks_) {
      sum += ids.asked(members[from], place);
    }
    return sum;
  };
  exchange(stage, lane, machines_, asked, bytes, way, memory);
}

void ClusterCollectives::hop_between(const train::Stage& stage, Lane lane, const Ids& ids,
                                     double bytes, Way way, Memory memory) {
  const auto merged = [&](const std::vector<int>& members, std::size_t from, std::size_t to) {
    return ids.merged(machine_of(members[from]), place_of(members[to]));
  };
  exchange(stage, lane, rails_, merged, bytes, way, memory);
}

ClusterCollectives::Relayed ClusterCollectives::relayed(const Ids& ids, int rank) const {
  Relayed counts;
  const std::size_t size = groups_[0].size(), own = place_of(rank);
  for (std::size_t place = own % machine_ranks_; place < size; place += machine_ranks_) {
    for (const int member : machines_[machine_of(rank)]) counts.taken += ids.asked(member, place);
    counts.merged += ids.merged(machine_of(rank), place);
  }
  const std::size_t machines = size / machine_ranks_;
  const std::size_t first = machine_of(rank) / machines * machines;  // of its group
  for (std::size_t machine = first; machine < first + machines; ++machine) {
    counts.requested += ids.merged(machine, own);
  }
  return counts;
}

void ClusterCollectives::exchange_counts(const train::Stage& stage, Lane lane) {
  const Body body = [&](const std::vector<int>& members, std::span<double> times) {
    network_.all_to_all_even(members, 8, times, Memory::kHost);
  };
  if (!two_hops()) return together(stage, lane, groups_, body);
  together(stage, lane, machines_, body);
  together(stage, lane, rails_, body);
}

void ClusterCollectives::gather_counts(const train::Stage& stage, Lane lane) {
  together(stage, lane, replicas_, [&](const std::vector<int>& members, std::span<double> times) {
    gather(members, std::vector<std::int64_t>(members.size(), 8), times, Memory::kHost);
  });
}

void ClusterCollectives::gather_rows(const train::Stage& stage, Lane lane, const Ids& ids,
                                     double bytes, Memory memory) {
  together(stage, lane, replicas_, [&](const std::vector<int>& members, std::span<double> times) {
    std::vector<std::int64_t> sizes;
    sizes.reserve(members.size());
    for (const int rank : members) {
      sizes.push_back(static_cast<std::int64_t>(static_cast<double>(ids.owned(rank)) * bytes));
    }
    gather(members, sizes, times, memory);
  });
}

void ClusterCollectives::gather_all(const train::Stage& stage, Lane lane,
                                    std::span<const std::int64_t> counts, std::int64_t bytes) {
  std::vector<std::int64_t> sizes(counts.begin(), counts.end());
  for (std::int64_t& size : sizes) size *= bytes;
  together(
      stage, lane, {everybody_}, [&](const std::vector<int>& members, std::span<double> times) {
        gather(members, std::vector<std::int64_t>(members.size(), 2 * bytes), times, Memory::kHost);
        gather(members, sizes, times, Memory::kHost);
      });
}

void ClusterCollectives::gather(const std::vector<int>& members,
                                const std::vector<std::int64_t>& sizes, std::span<double> times,
                                Memory memory) {
  std::vector<std::vector<dist::Round>> rounds;
  rounds.reserve(members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    rounds.push_back(dist::all_gather_rounds(static_cast<int>(i), sizes));
  }
  network_.run_rounds(members, rounds, times, memory);
}

void ClusterCollectives::small_sum(const train::Stage& stage, Lane lane, std::int64_t numbers,
                                   Memory memory) {
  together(stage, lane, {everybody_},
           [&](const std::vector<int>& members, std::span<double> times) {
             if (memory == Memory::kDevice) {
               const double begin = *std::max_element(times.begin(), times.end());
               const double end = network_.all_reduce(8.0 * static_cast<double>(numbers), 1, begin);
               std::fill(times.begin(), times.end(), end);
               return;
             }
             std::vector<std::vector<dist::Round>> rounds;
             rounds.reserve(members.size());
             for (int rank = 0; rank < ranks(); ++rank) {
               rounds.push_back(dist::all_reduce_rounds(rank, ranks(), numbers, 8));
             }
             network_.run_rounds(members, rounds, times, memory);
           });
}

void ClusterCollectives::wait_until(const train::Stage& stage, Lane lane, double seconds) {
  together(stage, lane, {everybody_}, [&](const std::vector<int>&, std::span<double> times) {
    for (double& time : times) time = std::max(time, seconds);
  });
}

}  // namespace turbogr::plan
