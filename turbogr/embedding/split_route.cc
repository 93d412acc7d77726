// A route cut in two: part of a step's gradients may then travel before the rest.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/embedding/counts.h"
#include "turbogr/embedding/row_groups.h"
#include "turbogr/embedding/sharded_table.h"

namespace turbogr::embedding {
namespace {

// Which of `rows` are among `chosen`; both ascending.
void mark_chosen(std::span<const std::int64_t> rows, std::span<const std::int64_t> chosen,
                 std::vector<std::uint8_t>& marks) {
  auto next = chosen.begin();
  for (const std::int64_t row : rows) {
    while (next != chosen.end() && *next < row) ++next;
    marks.push_back(next != chosen.end() && *next == row ? 1 : 0);
  }
}

// The rows of all replicas, as ShardedTable::route leaves them, of one part.
void split_replicas(const Context& ctx, const Route& route, std::span<const std::int64_t> chosen,
                    Route& among, Route& others) {
  for (Route* part : {&among, &others}) {
    part->replica_counts.assign(route.replica_counts.size(), 0);
    part->all_rows.clear();
  }
  if (route.replica_counts.size() == 1) {
    for (Route* part : {&among, &others}) {
      part->touched = part->rows;
      part->replica_counts[0] = static_cast<std::int64_t>(part->rows.size());
    }
    return;
  }
  std::vector<std::uint8_t> marks;
  std::span<const std::int64_t> left = route.all_rows;
  for (std::size_t replica = 0; replica < route.replica_counts.size(); ++replica) {
    const auto rows = left.first(static_cast<std::size_t>(route.replica_counts[replica]));
    left = left.subspan(rows.size());
    marks.clear();
    mark_chosen(rows, chosen, marks);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Route& part = marks[i] != 0 ? among : others;
      part.all_rows.push_back(rows[i]);
      ++part.replica_counts[replica];
    }
  }
  for (Route* part : {&among, &others}) {
    group_equal(ctx, part->all_rows, part->touched, part->touched_offsets, part->touched_positions,
                part->inverse);
  }
}

}  // namespace

void ShardedTable::split(const Context& ctx, const TableCommunicators& communicators,
                         const Route& route, std::span<const std::int64_t> chosen, Route& among,
                         Route& others) const {
  // As the owner: requests of chosen rows. Their places in the block of the rank that asked tell it
  // which they are.
  std::vector<std::uint8_t> chosen_rows, chosen_requests(route.requests.size());
  mark_chosen(route.rows, chosen, chosen_rows);
  for (std::size_t row = 0; row < route.rows.size(); ++row) {
    for (std::int64_t i = route.group_offsets[row]; i < route.group_offsets[row + 1]; ++i) {
      chosen_requests[static_cast<std::size_t>(route.group_requests[static_cast<std::size_t>(i)])] =
          chosen_rows[row];
    }
  }
  for (Route* part : {&among, &others}) {
    part->requests.clear();
    part->asked_by.assign(route.asked_by.size(), 0);
    part->asked_of.assign(route.asked_of.size(), 0);
    part->order.clear();
    part->num_gradients = route.num_gradients;
  }
  std::vector<std::int32_t> places, chosen_places;
  std::size_t at = 0;
  for (std::size_t peer = 0; peer < route.asked_by.size(); ++peer) {
    for (std::int64_t k = 0; k < route.asked_by[peer]; ++k, ++at) {
      Route& part = chosen_requests[at] != 0 ? among : others;
      part.requests.push_back(route.requests[at]);
      ++part.asked_by[peer];
      if (chosen_requests[at] != 0) places.push_back(static_cast<std::int32_t>(k));
    }
  }
  for (Route* part : {&among, &others}) {
    group_equal(ctx, part->requests, part->rows, part->group_offsets, part->group_requests,
                part->inverse);
  }
  split_replicas(ctx, route, chosen, among, others);

  // As the one that asked.
  exchange_counts(*communicators.group, among.asked_by, among.asked_of);
  exchange_values(*communicators.group, places, among.asked_by, chosen_places, among.asked_of);
  std::size_t next = 0;
  at = 0;
  for (std::size_t peer = 0; peer < route.asked_of.size(); ++peer) {
    const std::size_t last = next + static_cast<std::size_t>(among.asked_of[peer]);
    for (std::int64_t k = 0; k < route.asked_of[peer]; ++k, ++at) {
      const bool taken = next < last && chosen_places[next] == k;
      next += taken ? 1 : 0;
      (taken ? among : others).order.push_back(route.order[at]);
    }
    others.asked_of[peer] = route.asked_of[peer] - among.asked_of[peer];
  }
  for (Route* part : {&among, &others}) part->num_ids = std::ssize(part->order);
}

}  // namespace turbogr::embedding
