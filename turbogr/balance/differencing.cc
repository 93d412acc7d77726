#include "turbogr/balance/differencing.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

namespace turbogr::balance {
namespace {

constexpr std::int32_t kNobody = -1;

// A part of a partial plan: its work, and its items as a list through `next`.
struct Part {
  double work = 0;
  std::int32_t first = kNobody;
  std::int32_t last = kNobody;
};

// Parts with work in them, heaviest first; the others are empty and need no place.
using Partial = std::vector<Part>;

struct Entry {
  double spread;
  std::int32_t partial;
  bool operator<(const Entry& other) const {
    return spread != other.spread ? spread < other.spread : partial > other.partial;
  }
};

bool heavier(const Part& a, const Part& b) {
  return a.work != b.work ? a.work > b.work : a.first < b.first;
}

}  // namespace

void difference(std::span<const double> costs, std::span<const std::int32_t> order, int parts,
                std::span<std::int32_t> part_of) {
  if (order.empty()) return;
  const auto limit = static_cast<std::size_t>(parts);
  std::vector<std::int32_t> next(costs.size(), kNobody);
  std::vector<Partial> partials(order.size());
  std::vector<Entry> entries;
  entries.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t item = order[i];
    const double cost = costs[static_cast<std::size_t>(item)];
    partials[i] = {{cost, item, item}};
    entries.push_back({parts > 1 ? cost : 0.0, static_cast<std::int32_t>(i)});
  }
  std::priority_queue<Entry> queue({}, std::move(entries));
  while (queue.size() > 1) {
    const Entry one = queue.top();
    queue.pop();
    const Entry other = queue.top();
    queue.pop();
    Partial& into = partials[static_cast<std::size_t>(one.partial)];
    Partial& from = partials[static_cast<std::size_t>(other.partial)];
    if (into.size() < from.size()) into.swap(from);
    // Lightest of one under heaviest of the other: with empty parts to spare, beside each other.
    const std::size_t spare = limit - into.size();
    const std::size_t beside = std::min(spare, from.size());
    for (std::size_t i = beside; i < from.size(); ++i) {
      Part& target = into[into.size() - 1 - (i - beside)];
      target.work += from[i].work;
      next[static_cast<std::size_t>(target.last)] = from[i].first;
      target.last = from[i].last;
    }
    into.insert(into.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(beside));
    std::sort(into.begin(), into.end(), heavier);
    Partial().swap(from);
    const double lightest = into.size() == limit ? into.back().work : 0.0;
    queue.push({into.front().work - lightest, one.partial});
  }
  const Partial& plan = partials[static_cast<std::size_t>(queue.top().partial)];
  for (std::size_t part = 0; part < plan.size(); ++part) {
    for (std::int32_t item = plan[part].first; item != kNobody;
         item = next[static_cast<std::size_t>(item)]) {
      part_of[static_cast<std::size_t>(item)] = static_cast<std::int32_t>(part);
    }
  }
}

}  // namespace turbogr::balance
