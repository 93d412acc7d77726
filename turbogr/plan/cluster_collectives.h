// Collectives of a simulated cluster: which messages they are made of (dist/message_rounds.h), over
// which links they go, and how far they bring the ranks' clocks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "turbogr/plan/cluster_clock.h"
#include "turbogr/plan/network.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/plan/step_routes.h"
#include "turbogr/train/stages.h"

namespace turbogr::plan {

class ClusterCollectives {
 public:
  using Lane = embedding::Lane;

  explicit ClusterCollectives(const SimulationSetup& setup);

  int ranks() const { return network_.size(); }
  bool exact_replicas() const { return exact_replicas_; }
  const std::vector<int>& everybody() const { return everybody_; }
  const std::vector<int>& replicas_of(int place) const {
    return replicas_[static_cast<std::size_t>(place)];
  }
  ClusterClock& clock() { return clock_; }
  Network& network() { return network_; }

  // `ids` less `but`, where it is not null.
  struct Ids {
    const RouteCounts& ids;
    const RouteCounts* but = nullptr;
    std::int64_t asked(int rank, std::size_t place) const;
    std::int64_t merged(std::size_t machine, std::size_t place) const;
    std::int64_t owned(int rank) const;
  };

  // Inside every group: ids of ranks to their owners, or rows of owners to ranks, `bytes` each.
  enum class Way : std::uint8_t { kToOwners, kFromOwners };
  void group_exchange(const train::Stage& stage, Lane lane, const Ids& ids, double bytes, Way way,
                      Memory memory);
  // The same in two hops: between ranks and the relays of their machine, and between relays and
  // owners, which have the same place in their machines.
  bool two_hops() const { return machine_ranks_ > 0; }
  void hop_inside(const train::Stage& stage, Lane lane, const Ids& ids, double bytes, Way way,
                  Memory memory);
  void hop_between(const train::Stage& stage, Lane lane, const Ids& ids, double bytes, Way way,
                   Memory memory);
  // What a rank has in hand in two hops: ids of its machine's ranks, as their relay; the distinct
  // ones of them; and those that relays ask of it, as an owner.
  struct Relayed {
    std::int64_t taken = 0, merged = 0, requested = 0;
  };
  Relayed relayed(const Ids& ids, int rank) const;
  // One number to and from every rank of a group, between hosts.
  void exchange_counts(const train::Stage& stage, Lane lane);
  // Between replicas: how many rows each has, between hosts; and every one's, `bytes` each, to all.
  void gather_counts(const train::Stage& stage, Lane lane);
  void gather_rows(const train::Stage& stage, Lane lane, const Ids& ids, double bytes,
                   Memory memory);
  // Between all ranks' hosts: how many each has, and everyone's, `bytes` each, to all.
  void gather_all(const train::Stage& stage, Lane lane, std::span<const std::int64_t> counts,
                  std::int64_t bytes);
  // A few numbers of all ranks added up.
  void small_sum(const train::Stage& stage, Lane lane, std::int64_t numbers, Memory memory);
  // Nobody goes on before `seconds`.
  void wait_until(const train::Stage& stage, Lane lane, double seconds);

 private:
  // body(members, times) moves the times of every one of `teams` on.
  using Body = std::function<void(const std::vector<int>& members, std::span<double> times)>;
  void together(const train::Stage& stage, Lane lane, const std::vector<std::vector<int>>& teams,
                const Body& body);
  // An exchange inside every one of `teams`; to_owner(i, j): what member i has for member j.
  using Counts = std::function<std::int64_t(const std::vector<int>&, std::size_t, std::size_t)>;
  void exchange(const train::Stage& stage, Lane lane, const std::vector<std::vector<int>>& teams,
                const Counts& to_owner, double bytes, Way way, Memory memory);
  std::size_t place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  std::size_t machine_of(int rank) const { return machines_of_[static_cast<std::size_t>(rank)]; }
  void gather(const std::vector<int>& members, const std::vector<std::int64_t>& sizes,
              std::span<double> times, Memory memory);

  Network network_;
  ClusterClock clock_;
  bool exact_replicas_;
  std::vector<std::vector<int>> groups_;    // by place
  std::vector<std::vector<int>> replicas_;  // of each place, by group
  std::size_t machine_ranks_ = 0;
  std::vector<std::vector<int>> machines_, rails_;  // two hops: each group's, by place
  std::vector<std::size_t> places_, machines_of_;   // of each rank
  std::vector<int> everybody_;
};

}  // namespace turbogr::plan
