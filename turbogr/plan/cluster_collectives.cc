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
}

std::int64_t ClusterCollectives::Ids::asked(int rank, std::size_t place) const {
  return ids.asked_by(rank)[place] - (but == nullptr ? 0 : but->asked_by(rank)[place]);
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

void ClusterCollectives::group_exchange(const train::Stage& stage, Lane lane, const Ids& ids,
                                        double bytes, Way way, Memory memory) {
  const auto bytes_of = [&](int rank, std::size_t place) {
    return static_cast<std::int64_t>(static_cast<double>(ids.asked(rank, place)) * bytes);
  };
  together(stage, lane, groups_, [&](const std::vector<int>& members, std::span<double> times) {
    std::vector<std::int64_t> send(members.size()), receive(members.size());
    const auto round_of = [&](std::size_t i) {
      for (std::size_t peer = 0; peer < members.size(); ++peer) {
        send[peer] = bytes_of(members[i], peer);
        receive[peer] = bytes_of(members[peer], i);
      }
      if (way == Way::kFromOwners) std::swap(send, receive);
      return dist::all_to_all_round(send, receive);
    };
    network_.run_round(members, round_of, times, memory);
  });
}

void ClusterCollectives::exchange_counts(const train::Stage& stage, Lane lane) {
  together(stage, lane, groups_, [&](const std::vector<int>& members, std::span<double> times) {
    network_.all_to_all_even(members, 8, times, Memory::kHost);
  });
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

void ClusterCollectives::gather(const std::vector<int>& members,
                                const std::vector<std::int64_t>& sizes, std::span<double> times,
                                Memory memory) {
  if (!dist::gathers_in_rounds(sizes)) {
    const auto round_of = [&](std::size_t i) {
      return dist::all_gather_rounds(static_cast<int>(i), sizes).front();
    };
    network_.run_round(members, round_of, times, memory);
    return;
  }
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
