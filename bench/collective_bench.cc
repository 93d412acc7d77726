#include "bench/collective_bench.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "bench/timing.h"
#include "turbogr/core/check.h"

namespace turbogr::bench {
namespace {

constexpr int kLeastRuns = 5;
constexpr int kMostRuns = 200;

int nodes_of(const dist::Communicator& world) {
  return static_cast<int>(std::set<int>(world.nodes().begin(), world.nodes().end()).size());
}

// The first rank beside rank 0 that is on its machine, or is not; -1: none.
int partner_of(const dist::Communicator& world, bool same_machine) {
  const std::vector<int>& nodes = world.nodes();
  for (std::size_t rank = 1; rank < nodes.size(); ++rank) {
    if ((nodes[rank] == nodes[0]) == same_machine) return static_cast<int>(rank);
  }
  return -1;
}

// Seconds of a call that all ranks make at the same time: the slowest rank's, of the runs the one
// that nine in ten are slower than. Two that exchange over TCP sometimes take turns, and others use
// the machine; both are no part of the link.
double seconds_of(dist::Communicator& ranks, double budget, const std::function<void()>& call) {
  call();  // connections and memory
  double first = milliseconds_of(call);
  ranks.all_reduce({&first, 1}, dist::Reduce::kMax);
  const int runs =
      std::clamp(static_cast<int>(1e3 * budget / std::max(first, 1e-3)), kLeastRuns, kMostRuns);
  std::vector<double> samples;
  for (int run = 0; run < runs; ++run) {
    ranks.barrier();
    samples.push_back(milliseconds_of(call));
  }
  ranks.all_reduce(samples, dist::Reduce::kMax);
  return 1e-3 * summary_of(samples).p10_ms;
}

std::vector<std::int64_t> sizes_up_to(std::int64_t largest) {
  std::vector<std::int64_t> sizes = {64};
  while (sizes.back() * 8 <= largest) sizes.push_back(sizes.back() * 8);
  return sizes;
}

// Bytes that go to or come from each of `ranks`: the same for everybody but oneself.
std::vector<std::int64_t> even_parts(const dist::Communicator& ranks, std::int64_t bytes) {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks.size()), bytes);
  parts[static_cast<std::size_t>(ranks.rank())] = 0;
  return parts;
}

class CollectiveTimer {
 public:
  CollectiveTimer(dist::Communicator& ranks, const CollectiveProblem& problem, int nodes)
      : ranks_(ranks), problem_(problem), nodes_(nodes) {
    const auto room = static_cast<std::size_t>(problem.largest * ranks.size());
    send_.resize(room);
    receive_.resize(room);
  }

  // `bytes` a rank: to the other ranks together.
  void all_to_all(const std::string& collective, std::int64_t bytes) {
    const std::vector<std::int64_t> parts = even_parts(ranks_, bytes / (ranks_.size() - 1));
    add(collective, bytes, [&] {
      ranks_.all_to_all({send_.data(), parts}, {receive_.data(), parts});
    });
  }
  void all_reduce(std::int64_t bytes) {
    std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float), 1.0f);
    add("all_reduce", bytes, [&] { ranks_.all_reduce(values, dist::Reduce::kMax); });
  }
  void all_gather(std::int64_t bytes) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks_.size()), bytes);
    add("all_gather", bytes, [&] { ranks_.all_gather(send_.data(), {receive_.data(), counts}); });
  }

  std::vector<plan::CollectiveTime> take() { return std::move(times_); }

 private:
  void add(const std::string& collective, std::int64_t bytes, const std::function<void()>& call) {
    times_.push_back(
        {collective, ranks_.size(), nodes_, bytes, seconds_of(ranks_, problem_.seconds, call)});
  }

  dist::Communicator& ranks_;
  CollectiveProblem problem_;
  int nodes_;
  std::vector<std::byte> send_, receive_;
  std::vector<plan::CollectiveTime> times_;
};

}  // namespace

std::vector<plan::CollectiveTime> measure_collectives(dist::Communicator& world,
                                                      const CollectiveProblem& problem) {
  std::vector<plan::CollectiveTime> all;
  if (world.size() == 1) return all;
  const std::vector<std::int64_t> sizes = sizes_up_to(problem.largest);
  for (const bool same_machine : {true, false}) {
    const int partner = partner_of(world, same_machine);
    if (partner < 0) continue;
    const bool in_pair = world.rank() == 0 || world.rank() == partner;
    const auto pair = world.split(in_pair ? 0 : 1, world.rank(), "pair");
    if (in_pair) {
      CollectiveTimer timer(*pair, problem, same_machine ? 1 : 2);
      for (const std::int64_t bytes : sizes) timer.all_to_all("exchange", bytes);
      for (plan::CollectiveTime& time : timer.take()) all.push_back(std::move(time));
    }
    world.barrier();
  }
  CollectiveTimer timer(world, problem, nodes_of(world));
  for (const std::int64_t bytes : sizes) {
    timer.all_reduce(bytes);
    timer.all_gather(bytes);
    timer.all_to_all("all_to_all", bytes);
  }
  for (plan::CollectiveTime& time : timer.take()) all.push_back(std::move(time));
  return all;  // rank 0 has the pairs' as well
}

}  // namespace turbogr::bench
