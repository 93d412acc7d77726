#include "turbogr/run/rank_traces.h"

#include <cstddef>
#include <numeric>
#include <vector>

namespace turbogr::run {

void write_traces(dist::Communicator& world, const Trace& trace, std::int64_t start_ns,
                  const std::string& path) {
  world.barrier();
  const std::int64_t now = Trace::now_ns();
  const std::vector<std::int64_t> clocks = world.all_gather_value(now);
  const std::vector<std::int64_t> starts = world.all_gather_value(start_ns);
  const std::string own = trace.events(clocks[0] - now - starts[0]);
  const std::vector<std::int64_t> sizes =
      world.all_gather_value(static_cast<std::int64_t>(own.size()));
  std::vector<std::int64_t> out(sizes.size(), 0), in(sizes.size(), 0);
  out[0] = static_cast<std::int64_t>(own.size());
  std::string all;
  if (world.rank() == 0) {
    in = sizes;
    all.resize(
        static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
  }
  world.all_to_all({own.data(), out}, {all.data(), in});
  if (world.rank() != 0) return;
  std::vector<std::string> events;
  std::size_t at = 0;
  for (const std::int64_t size : sizes) {
    events.push_back(all.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size);
  }
  Trace::write_all(path, events);
}

}  // namespace turbogr::run
