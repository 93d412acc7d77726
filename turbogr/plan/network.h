// Links of a cluster and how long messages take over them. Every device has a port to the others of
// its machine, hosts copy for each pair of ranks by themselves; the ranks of a machine share its
// NICs. A link carries one message after the other;
// a message is there when both its ends have carried it, and a latency later. So what many send to
// one queues before it (incast), and ranks of a machine queue for their NIC.
//
// The state is the time from which each link is free: messages are given in about the order in
// which they start.
#pragma once

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

  // Bytes carried so far, each way.
  double local_bytes(int rank) const { return local_bytes_[static_cast<std::size_t>(rank)]; }
  double nic_bytes(int node) const { return nic_bytes_[static_cast<std::size_t>(node)]; }

 private:
  std::size_t nic_of(int rank) const { return nic_of_[static_cast<std::size_t>(rank)]; }
  double nic_rate(int node) const;

  GpuDescription gpu_;
  NetworkDescription network_;
  std::vector<int> nodes_;
  SlowLink slow_;
  int num_nodes_ = 0;
  std::vector<int> ranks_of_node_;
  std::vector<std::size_t> nic_of_;
  std::vector<double> local_out_, local_in_;  // [ranks], free from
  std::vector<double> nic_out_, nic_in_;      // [machines x NICs]
  std::vector<double> local_bytes_, nic_bytes_;
};

}  // namespace turbogr::plan
