#include "turbogr/plan/network.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::plan {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// A link that is free from `free` on carries something for `seconds`, not before `ready`.
double occupy(double& free, double ready, double seconds) {
  free = std::max(free, ready) + seconds;
  return free;
}

}  // namespace

Network::Network(const GpuDescription& gpu, const NetworkDescription& network,
                 std::vector<int> nodes, const SlowLink& slow)
    : gpu_(gpu), network_(network), nodes_(std::move(nodes)), slow_(slow) {
  TGR_CHECK(!nodes_.empty(), "a network of no ranks; give at least one");
  num_nodes_ = 1 + *std::max_element(nodes_.begin(), nodes_.end());
  TGR_CHECK(slow.node < num_nodes_, "machine ", slow.node,
            " is to have a slow link, and there are ", num_nodes_, ", counted from 0");
  constexpr double kMostNics = 1024;
  TGR_CHECK(network.nics.value >= 1 && network.nics.value <= kMostNics &&
                network.nics.value == std::floor(network.nics.value),
            "'nics' of a machine is ", network.nics.value, "; wanted: a whole number from 1 to ",
            kMostNics);
  const auto nics = static_cast<std::size_t>(network.nics.value);
  ranks_of_node_.assign(static_cast<std::size_t>(num_nodes_), 0);
  for (const int node : nodes_) {
    const auto place =
        static_cast<std::size_t>(ranks_of_node_[static_cast<std::size_t>(node)]++) % nics;
    nic_of_.push_back(static_cast<std::size_t>(node) * nics + place);
  }
  local_out_.assign(nodes_.size(), 0);
  local_in_ = local_out_;
  nic_out_.assign(static_cast<std::size_t>(num_nodes_) * nics, 0);
  nic_in_ = nic_out_;
  ports_.resize(nodes_.size());
  nics_.resize(nic_out_.size());
}

double Network::nic_rate(int node) const {
  const double slow = node == slow_.node ? slow_.factor : 1;
  return network_.nic_gbs.value * kGiga * std::min(1.0, network_.fabric.value) * slow;
}

double Network::port_out(std::size_t rank, double bytes, double seconds, double ready) {
  ports_[rank].out_bytes += bytes;
  ports_[rank].out_seconds += seconds;
  return occupy(local_out_[rank], ready, seconds);
}
double Network::port_in(std::size_t rank, double bytes, double seconds, double ready) {
  ports_[rank].in_bytes += bytes;
  ports_[rank].in_seconds += seconds;
  return occupy(local_in_[rank], ready, seconds);
}
double Network::nic_out(std::size_t nic, double bytes, double seconds, double ready) {
  nics_[nic].out_bytes += bytes;
  nics_[nic].out_seconds += seconds;
  return occupy(nic_out_[nic], ready, seconds);
}
double Network::nic_in(std::size_t nic, double bytes, double seconds, double ready) {
  nics_[nic].in_bytes += bytes;
  nics_[nic].in_seconds += seconds;
  return occupy(nic_in_[nic], ready, seconds);
}

double Network::send(int from, int to, std::int64_t bytes, double ready, Memory memory) {
  if (from == to) return ready;
  const auto f = static_cast<std::size_t>(from), t = static_cast<std::size_t>(to);
  const auto size = static_cast<double>(bytes);
  if (nodes_[f] == nodes_[t]) {
    if (memory == Memory::kHost) {
      ports_[f].out_bytes += size;
      ports_[t].in_bytes += size;
      return ready + size / (network_.host_gbs.value * kGiga) + gpu_.local_us.value * kMicro;
    }
    const double seconds = size / (gpu_.local_gbs.value * kGiga);
    const double sent = port_out(f, size, seconds, ready);
    const double arrived = port_in(t, size, seconds, ready);
    return std::max(sent, arrived) + gpu_.local_us.value * kMicro;
  }
  const double least = network_.message_us.value * kMicro;
  const double sent =
      nic_out(nic_of(from), size, std::max(least, size / nic_rate(nodes_[f])), ready);
  const double arrived =
      nic_in(nic_of(to), size, std::max(least, size / nic_rate(nodes_[t])), ready);
  const Figure& latency = memory == Memory::kHost ? network_.host_us : network_.net_us;
  return std::max(sent, arrived) + latency.value * kMicro;
}

void Network::run_round(std::span<const int> members,
                        const std::function<dist::Round(std::size_t member)>& round_of,
                        std::span<double> times, Memory memory) {
  const std::vector<double> entered(times.begin(), times.end());
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const dist::Message& message : round_of(i).sends) {
      const auto peer = static_cast<std::size_t>(message.peer);
      const double arrived = send(members[i], members[peer], message.bytes,
                                  std::max(entered[i], entered[peer]), memory);
      times[i] = std::max(times[i], arrived);
      times[peer] = std::max(times[peer], arrived);
    }
  }
}

void Network::run_rounds(std::span<const int> members,
                         const std::vector<std::vector<dist::Round>>& rounds,
                         std::span<double> times, Memory memory) {
  for (std::size_t round = 0; round < rounds.front().size(); ++round) {
    run_round(
        members, [&](std::size_t member) { return rounds[member][round]; }, times, memory);
  }
}

void Network::all_to_all_even(std::span<const int> members, double bytes, std::span<double> times,
                              Memory memory) {
  const double ready = *std::max_element(times.begin(), times.end());
  std::vector<int> of_node(static_cast<std::size_t>(num_nodes_), 0);
  for (const int member : members) {
    ++of_node[static_cast<std::size_t>(nodes_[static_cast<std::size_t>(member)])];
  }
  const bool host = memory == Memory::kHost;
  const double least = network_.message_us.value * kMicro;
  double last = ready;
  for (const int member : members) {
    const auto m = static_cast<std::size_t>(member);
    const int node = nodes_[m];
    const double inside = of_node[static_cast<std::size_t>(node)] - 1;
    const double outside = static_cast<double>(members.size()) - 1 - inside;
    if (host && inside > 0) {
      ports_[m].out_bytes += inside * bytes;
      ports_[m].in_bytes += inside * bytes;
      last = std::max(last, ready + bytes / (network_.host_gbs.value * kGiga));
    } else {
      const double seconds = inside * bytes / (gpu_.local_gbs.value * kGiga);
      last = std::max(last, port_out(m, inside * bytes, seconds, ready));
      last = std::max(last, port_in(m, inside * bytes, seconds, ready));
    }
    if (outside == 0) continue;
    const double seconds = outside * std::max(least, bytes / nic_rate(node));
    last = std::max(last, nic_out(nic_of(member), outside * bytes, seconds, ready));
    last = std::max(last, nic_in(nic_of(member), outside * bytes, seconds, ready));
  }
  const bool leaves = std::any_of(members.begin(), members.end(), [&](int member) {
    return nodes_[static_cast<std::size_t>(member)] != nodes_[static_cast<std::size_t>(members[0])];
  });
  const Figure& latency = !leaves ? gpu_.local_us : host ? network_.host_us : network_.net_us;
  std::fill(times.begin(), times.end(), last + latency.value * kMicro);
}

double Network::all_reduce_hosts(double bytes, int calls, double begin) {
  if (size() == 1) return begin;
  std::vector<int> everybody(nodes_.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<double> times(nodes_.size(), begin);
  const double cut = bytes / calls / size();
  for (int call = 0; call < calls; ++call) {
    all_to_all_even(everybody, cut, times, Memory::kHost);
    for (double& time : times) time += cut * size() / (network_.host_sum_gbs.value * kGiga);
    all_to_all_even(everybody, cut, times, Memory::kHost);
  }
  return times.front();
}

double Network::all_reduce(double bytes, int calls, double begin) {
  const auto ranks = static_cast<double>(size());
  if (size() == 1) return begin;
  const double local = 2 * bytes * (ranks - 1) / ranks;
  const auto nodes = static_cast<double>(num_nodes_);
  double last = begin;
  for (int rank = 0; rank < size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const int node = nodes_[r];
    const double neighbours = ranks_of_node_[static_cast<std::size_t>(node)];
    if (neighbours > 1) {
      const double seconds = local / (gpu_.local_gbs.value * kGiga);
      last = std::max(last, port_out(r, local, seconds, begin));
      last = std::max(last, port_in(r, local, seconds, begin));
    }
    if (num_nodes_ > 1) {  // what a machine sends, its ranks share
      const double share = 2 * bytes * (nodes - 1) / nodes / neighbours;
      const double seconds = share / nic_rate(node);
      last = std::max(last, nic_out(nic_of(rank), share, seconds, begin));
      last = std::max(last, nic_in(nic_of(rank), share, seconds, begin));
    }
  }
  // Trees: up and down, first inside a machine, then between them.
  const double depth_inside = std::ceil(std::log2(std::max(1.0, ranks / nodes)));
  const double depth_between = std::ceil(std::log2(nodes));
  const double latency =
      2 * (depth_inside * gpu_.local_us.value + depth_between * network_.net_us.value) * kMicro;
  return last + calls * latency;
}

}  // namespace turbogr::plan
