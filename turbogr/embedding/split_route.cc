// A route cut in two: part of a step's gradients may then travel before the rest.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "turbogr/embedding/route.h"
#include "turbogr/embedding/row_groups.h"
#include "turbogr/embedding/table_lists.h"

namespace turbogr::embedding {
namespace {

// Which of `rows` are among `chosen`; both ascending.
void mark_chosen(std::span<const std::int64_t> rows, std::span<const std::int64_t> chosen,
                 std::vector<std::uint8_t>& marks) {
  marks.clear();
  auto next = chosen.begin();
  for (const std::int64_t row : rows) {
    while (next != chosen.end() && *next < row) ++next;
    marks.push_back(next != chosen.end() && *next == row ? 1 : 0);
  }
}

// The rows of all replicas, as route_ids leaves them, of one part.
void split_replicas(const Context& ctx, const Route& route, std::span<const std::int64_t> chosen,
                    Route& among, Route& others, std::vector<std::uint8_t>& marks) {
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
  std::span<const std::int64_t> left = route.all_rows;
  for (std::size_t replica = 0; replica < route.replica_counts.size(); ++replica) {
    const auto rows = left.first(static_cast<std::size_t>(route.replica_counts[replica]));
    left = left.subspan(rows.size());
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

// As the owner: requests of chosen rows. Their places in the block of the rank that asked tell it
// which they are.
void split_requests(const Context& ctx, const Route& route, std::span<const std::int64_t> chosen,
                    Route& among, Route& others, SplitMarks& marks,
                    std::vector<std::int32_t>& places) {
  mark_chosen(route.rows, chosen, marks.rows);
  marks.requests.resize(route.requests.size());
  for (std::size_t row = 0; row < route.rows.size(); ++row) {
    for (std::int64_t i = route.group_offsets[row]; i < route.group_offsets[row + 1]; ++i) {
      marks.requests[static_cast<std::size_t>(route.group_requests[static_cast<std::size_t>(i)])] =
          marks.rows[row];
    }
  }
  for (Route* part : {&among, &others}) {
    part->requests.clear();
    part->asked_by.assign(route.asked_by.size(), 0);
    part->asked_of.assign(route.asked_of.size(), 0);
    part->order.clear();
    part->num_gradients = route.num_gradients;
  }
  places.clear();
  std::size_t at = 0;
  for (std::size_t peer = 0; peer < route.asked_by.size(); ++peer) {
    for (std::int64_t k = 0; k < route.asked_by[peer]; ++k, ++at) {
      Route& part = marks.requests[at] != 0 ? among : others;
      part.requests.push_back(route.requests[at]);
      ++part.asked_by[peer];
      if (marks.requests[at] != 0) places.push_back(static_cast<std::int32_t>(k));
    }
  }
  for (Route* part : {&among, &others}) {
    group_equal(ctx, part->requests, part->rows, part->group_offsets, part->group_requests,
                part->inverse);
  }
}

// As the one that asked.
void split_asked(const Route& route, const std::vector<std::int32_t>& chosen_places, Route& among,
                 Route& others) {
  std::size_t next = 0, at = 0;
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

}  // namespace

void split_route(const Context& ctx, const TableCommunicators& communicators,
                 std::span<const ShardedTable> tables, const StepRoute& current,
                 const StepRoute& next, StepRoute& among, StepRoute& others) {
  for (StepRoute* part : {&among, &others}) {
    part->tables.resize(tables.size());
    part->joined = current.joined;
  }
  SplitMarks& marks = among.marks;
  marks.places.resize(tables.size());
  marks.chosen_places.resize(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::vector<std::int64_t>& chosen = next.tables[t].touched;
    split_requests(ctx, current.tables[t], chosen, among.tables[t], others.tables[t], marks,
                   marks.places[t]);
    split_replicas(ctx, current.tables[t], chosen, among.tables[t], others.tables[t], marks.rows);
  }
  exchange_lists<std::int32_t>(
      *communicators.group, tables.size(),
      [&](std::size_t t) {
        return SendList<std::int32_t>{marks.places[t], among.tables[t].asked_by};
      },
      [&](std::size_t t) {
        return ReceiveList<std::int32_t>{marks.chosen_places[t], among.tables[t].asked_of};
      },
      among.lists);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    split_asked(current.tables[t], marks.chosen_places[t], among.tables[t], others.tables[t]);
  }
  for (StepRoute* part : {&among, &others}) lay_out_rows(tables, *part);
}

}  // namespace turbogr::embedding
