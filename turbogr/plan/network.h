// Links of a cluster and how long messages take over them. Every device has a port to the others of
// its machine, hosts copy for each pair of ranks by themselves; the ranks of a machine share its
// NICs. A link carries one message after the other;
// a message is there when both its ends have carried it, and a latency later. So what many send to
// one queues before it (incast), and ranks of a machine queue for their NIC.
//
// The state is the time from which each link is free: messages are given in about the order in
// which they start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "turbogr/dist/message_rounds.h"
#include "turbogr/plan/machine.h"

namespace turbogr::plan {

enum class Memory : std::uint8_t { kDevice, kHost };  // that messages go between

struct SlowLink {
  int node = -1;      // whose NICs; none
  double factor = 1;  // of their bandwidth
};

// What a link has carried, and how long that took it.
struct LinkUse {
  double out_bytes = 0, in_bytes = 0;
  double out_seconds = 0, in_seconds = 0;

  double bytes() const { return std::max(out_bytes, in_bytes); }
  double seconds() const { return std::max(out_seconds, in_seconds); }
};

class Network {
 public:
  // nodes [ranks]: the machine of each rank.
  Network(const GpuDescription& gpu, const NetworkDescription& network, std::vector<int> nodes,
          const SlowLink& slow = {});

  int size() const { return static_cast<int>(nodes_.size()); }
  int num_nodes() const { return num_nodes_; }
  const std::vector<int>& nodes() const { return nodes_; }

  // A message that both ends are ready for; returns when it has arrived.
  double send(int from, int to, std::int64_t bytes, double ready, Memory memory);

  // A collective over `members` in one round, the messages of member i being round_of(i).sends.
  // times [members]: when each enters it, and afterwards when each has what it wanted.
  void run_round(std::span<const int> members,
                 const std::function<dist::Round(std::size_t member)>& round_of,
                 std::span<double> times, Memory memory);
  // The same in several rounds: a rank goes on to the next when one is done on its side.
  void run_rounds(std::span<const int> members, const std::vector<std::vector<dist::Round>>& rounds,
                  std::span<double> times, Memory memory);

  // Everybody sends `bytes` to everybody else of `members`: what run_round would add up, without a
  // list of messages.
  void all_to_all_even(std::span<const int> members, double bytes, std::span<double> times,
                       Memory memory);

  // A sum over all ranks, of `bytes` on each: along rings through the machines' ports and NICs, in
  // `calls` calls one after the other. Returns when it is done, for all alike.
  double all_reduce(double bytes, int calls, double begin);
  // The same between hosts' memories: every rank adds up its cut and gives it to all
  // (dist::all_reduce_rounds, of equal cuts).
  double all_reduce_hosts(double bytes, int calls, double begin);

  // So far. Hosts of a machine copy without their ranks' ports: those have bytes and no time then.
  const std::vector<LinkUse>& ports() const { return ports_; }  // [ranks]
  const std::vector<LinkUse>& nics() const { return nics_; }    // [machines x NICs]
  std::size_t nics_of_node() const { return nics_.size() / static_cast<std::size_t>(num_nodes_); }

 private:
  std::size_t nic_of(int rank) const { return nic_of_[static_cast<std::size_t>(rank)]; }
  double nic_rate(int node) const;
  // Each takes a message at one of its ends, not before `ready`; returns when it is through.
  double port_out(std::size_t rank, double bytes, double seconds, double ready);
  double port_in(std::size_t rank, double bytes, double seconds, double ready);
  double nic_out(std::size_t nic, double bytes, double seconds, double ready);
  double nic_in(std::size_t nic, double bytes, double seconds, double ready);

  GpuDescription gpu_;
  NetworkDescription network_;
  std::vector<int> nodes_;
  SlowLink slow_;
  int num_nodes_ = 0;
  std::vector<int> ranks_of_node_;
  std::vector<std::size_t> nic_of_;
  std::vector<double> local_out_, local_in_;  // [ranks], free from
  std::vector<double> nic_out_, nic_in_;      // [machines x NICs]
  std::vector<LinkUse> ports_, nics_;
};

}  // namespace turbogr::plan
