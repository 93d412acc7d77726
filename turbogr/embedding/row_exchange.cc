#include "turbogr/embedding/row_exchange.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/move_rows.h"

namespace turbogr::embedding {
namespace {

constexpr std::int64_t kPieceColumns = 32;  // at least, of the widest table

// Room for `count` numbers of the device's memory; what was there is lost when it grows.
template <class T>
T* fit_message(const Context& ctx, Tensor& buffer, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(T);
  if (buffer.bytes() < bytes) {
    buffer = Tensor(DType::kU8, {static_cast<std::int64_t>(bytes + bytes / 4)}, ctx.device());
  }
  return reinterpret_cast<T*>(buffer.data());
}

void bytes_of_units(const std::vector<std::int64_t>& units, std::int64_t unit_bytes,
                    std::vector<std::int64_t>& bytes) {
  bytes.resize(units.size());
  std::transform(units.begin(), units.end(), bytes.begin(),
                 [&](std::int64_t count) { return count * unit_bytes; });
}

// Calls body with a value of the type rows travel in.
template <class Body>
void with_row_wire(DType wire, Body&& body) {
  if (wire == DType::kF32) {
    body(float{});
  } else if (wire == DType::kBf16) {
    body(bf16{});
  } else {
    TGR_ASSERT(wire == DType::kF16);
    body(f16{});
  }
}

// each(visit) calls visit(list, view) for all lists; the views are where the device reads them. A
// CPU reads them where they are.
template <class Each>
void send_lists(const Context& ctx, Feed& feed, Each&& each) {
  if (ctx.device() == Device::kCpu) {
    each([](const auto& list, auto& view) { view = {list.data(), {std::ssize(list)}}; });
    return;
  }
  std::size_t bytes = 0;
  each([&]<class T>(const std::vector<T>& list, auto&) { bytes += Feed::room<T>(list.size()); });
  feed.begin(ctx, bytes);
  each([&](const auto& list, auto& view) { view = feed.place(list); });
  feed.send_all(ctx);
}

}  // namespace

std::int64_t gradient_pieces(std::span<const ShardedTable> tables) {
  std::int64_t widest = 1;
  for (const ShardedTable& table : tables) widest = std::max(widest, table.options().width);
  std::int64_t pieces = std::clamp<std::int64_t>(widest / kPieceColumns, 1, kMostPieces);
  while (unit_columns(tables) % pieces != 0) --pieces;
  return pieces;
}

void RowExchange::begin(std::span<const ShardedTable> tables, const StepRoute& route) {
  unit_ = unit_columns(tables);
  row_wire_ = tables[0].options().row_wire;
  tables_.resize(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    tables_[t].num_ids = route.tables[t].num_ids;
    tables_[t].width = tables[t].options().width;
  }
}

void RowExchange::bring_rows(const Context& ctx, std::span<const ShardedTable> tables,
                             dist::Communicator& group, const RowMessage& sent,
                             const RowMessage& received) {
  with_row_wire(row_wire_, [&]<class Wire>(Wire) {
    Wire* const sending = fit_message<Wire>(ctx, sending_, sent.num_units() * unit_);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const TableLists& lists = tables_[t];
      with_weights(
          tables[t].own().weight_tensor(), [&]<class Weight>(View<const Weight, 2> weights) {
            ops::move_rows<Weight, Wire, std::int64_t>(
                ctx, weights, lists.requests,
                Rows<Wire>(sending, sent.num_units(), lists.width, unit_), lists.request_places);
          });
    }
    Wire* const receiving = fit_message<Wire>(ctx, receiving_, received.num_units() * unit_);
    const auto unit_bytes = unit_ * static_cast<std::int64_t>(sizeof(Wire));
    bytes_of_units(sent.units, unit_bytes, send_bytes_);
    bytes_of_units(received.units, unit_bytes, receive_bytes_);
    group.all_to_all({sending, send_bytes_}, {receiving, receive_bytes_});
  });
}

void RowExchange::fetch(const Context& ctx, std::span<const ShardedTable> tables,
                        const TableCommunicators& communicators, const StepRoute& route) {
  begin(tables, route);
  send_lists(ctx, fetch_lists_, [&](auto&& visit) {
    for (std::size_t t = 0; t < tables.size(); ++t) {
      visit(route.tables[t].requests, tables_[t].requests);
      visit(route.requested.places[t], tables_[t].request_places);
      visit(route.asked.places[t], tables_[t].arrived_places);
      visit(route.tables[t].order, tables_[t].arrived_ids);
    }
  });
  bring_rows(ctx, tables, *communicators.group, route.requested, route.asked);
}

void RowExchange::fetch_changed(const Context& ctx, std::span<const ShardedTable> tables,
                                const TableCommunicators& communicators, const StepRoute& route,
                                const StepRefresh& refresh) {
  begin(tables, route);
  send_lists(ctx, changed_lists_, [&](auto&& visit) {
    for (std::size_t t = 0; t < tables.size(); ++t) {
      visit(refresh.tables[t].requests, tables_[t].requests);
      visit(refresh.given.places[t], tables_[t].request_places);
      visit(refresh.taken.places[t], tables_[t].arrived_places);
      visit(refresh.tables[t].positions, tables_[t].arrived_ids);
    }
  });
  bring_rows(ctx, tables, *communicators.group, refresh.given, refresh.taken);
}

template <class T>
void RowExchange::take_rows(const Context& ctx, std::size_t table, Rows<T> out) const {
  const TableLists& lists = tables_[table];
  TGR_CHECK(out.rows == lists.num_ids && out.cols == lists.width, "rows wanted in [", out.rows,
            ", ", out.cols, "]; they are [", lists.num_ids, ", ", lists.width, "]");
  with_row_wire(row_wire_, [&]<class Wire>(Wire) {
    const auto* message = reinterpret_cast<const Wire*>(receiving_.data());
    const auto units = static_cast<std::int64_t>(receiving_.bytes() / sizeof(Wire)) / unit_;
    ops::move_rows<Wire, T>(ctx, Rows<const Wire>(message, units, lists.width, unit_),
                            lists.arrived_places, out, lists.arrived_ids);
  });
}

void RowExchange::send_return_lists(const Context& ctx, const StepRoute& route) {
  send_lists(ctx, return_lists_, [&](auto&& visit) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const Route& table = route.tables[t];
      TableLists& lists = tables_[t];
      visit(table.order, lists.order);
      visit(route.asked.places[t], lists.places);
      visit(table.rows, lists.groups.rows);
      visit(table.group_offsets, lists.groups.offsets);
      visit(table.group_places, lists.groups.places);
      if (!route.joined) continue;
      visit(table.touched, lists.joined.rows);
      visit(table.touched_offsets, lists.joined.offsets);
      visit(table.touched_places, lists.joined.places);
    }
  });
  for (TableLists& lists : tables_) {
    lists.touched = route.joined ? lists.joined.rows : lists.groups.rows;
  }
}

// For every table's sums, each from a multiple of 256 bytes on.
void RowExchange::make_gradient_room(const Context& ctx) {
  const auto room_of = [](const TableLists& lists) {
    return (lists.touched.shape[0] * lists.width + 63) / 64 * 64;
  };
  std::int64_t all = 0;
  for (const TableLists& lists : tables_) all += room_of(lists);
  float* next = fit_message<float>(ctx, gradients_, all);
  for (TableLists& lists : tables_) {
    lists.gradients = {next, lists.touched.shape[0], lists.width, lists.width};
    next += room_of(lists);
  }
}

// Rows are added where they stand in the message: the operator finds position p at p strides from
// the beginning, and a stride is a unit here.
template <class Wire>
void RowExchange::sum_groups(const Context& ctx, const Wire* message, std::int64_t unit,
                             const Groups& groups, Rows<float> sums) const {
  const std::int64_t count = groups.places.shape[0];
  ctx.workspace().reserve(ops::sum_groups_workspace_bytes<Wire>(ctx, count, sums.cols));
  ops::sum_duplicate_rows<Wire>(ctx, Rows<const Wire>(message, count, sums.cols, unit),
                                {groups.rows, groups.offsets, groups.places}, sums);
}

// Each stage of a piece runs while the pieces before it are on their way: between the ranks of a
// group and, where there are replicas, between those. Replicas exchange sums of rows already
// deduplicated, and add them in the order of groups.
template <class Wire>
void RowExchange::return_as(const Context& ctx, const TableCommunicators& communicators,
                            const StepRoute& route, std::span<const Rows<const float>> gradients,
                            std::int64_t pieces) {
  const std::int64_t unit = unit_ / pieces;
  const auto unit_bytes = unit * static_cast<std::int64_t>(sizeof(Wire));
  const std::int64_t asked = route.asked.num_units(), requested = route.requested.num_units();
  Wire* const sending = fit_message<Wire>(ctx, sending_, asked * unit_);
  Wire* const receiving = fit_message<Wire>(ctx, receiving_, requested * unit_);
  bytes_of_units(route.asked.units, unit_bytes, send_bytes_);
  bytes_of_units(route.requested.units, unit_bytes, receive_bytes_);
  std::array<dist::Pending, kMostPieces> to_owners, to_replicas;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    Wire* const message = sending + piece * asked * unit;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const std::int64_t width = tables_[t].width / pieces;
      ops::move_rows<float, Wire>(ctx, gradients[t].columns(piece * width, width), tables_[t].order,
                                  Rows<Wire>(message, asked, width, unit), tables_[t].places);
    }
    to_owners[static_cast<std::size_t>(piece)] = communicators.group->start_all_to_all(
        {message, send_bytes_}, {receiving + piece * requested * unit, receive_bytes_});
  }
  std::int64_t own_units = 0, all_units = 0;
  if (route.joined) {
    own_units = route.replicas.units[static_cast<std::size_t>(communicators.replicas->rank())];
    all_units = route.replicas.num_units();
    bytes_of_units(route.replicas.units, unit_bytes, receive_bytes_);
  }
  float* const own_sums = fit_message<float>(ctx, own_sums_, own_units * unit_);
  Wire* const replica_sums = fit_message<Wire>(ctx, replica_sums_, all_units * unit_);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    to_owners[static_cast<std::size_t>(piece)].wait();
    float* const own = own_sums + piece * own_units * unit;
    float* next = own;
    for (const TableLists& lists : tables_) {
      const std::int64_t width = lists.width / pieces, rows = lists.groups.rows.shape[0];
      sum_groups<Wire>(ctx, receiving + piece * requested * unit, unit, lists.groups,
                       route.joined ? Rows<float>(next, rows, width, width)
                                    : lists.gradients.columns(piece * width, width));
      next += rows * width;
    }
    if (!route.joined) continue;
    const void* given = own;
    if constexpr (std::is_same_v<Wire, bf16>) {
      const std::int64_t values = own_units * unit;
      bf16* const rounded = fit_message<bf16>(ctx, rounded_, own_units * unit_) + piece * values;
      ops::convert_values<bf16, float>(ctx, {own, {values}}, {rounded, {values}});
      given = rounded;
    }
    to_replicas[static_cast<std::size_t>(piece)] = communicators.replicas->start_all_gather(
        given, {replica_sums + piece * all_units * unit, receive_bytes_});
  }
  for (std::int64_t piece = 0; route.joined && piece < pieces; ++piece) {
    to_replicas[static_cast<std::size_t>(piece)].wait();
    for (const TableLists& lists : tables_) {
      const std::int64_t width = lists.width / pieces;
      sum_groups<Wire>(ctx, replica_sums + piece * all_units * unit, unit, lists.joined,
                       lists.gradients.columns(piece * width, width));
    }
  }
}

void RowExchange::return_gradients(const Context& ctx, std::span<const ShardedTable> tables,
                                   const TableCommunicators& communicators, const StepRoute& route,
                                   std::span<const Rows<const float>> gradients,
                                   std::int64_t pieces) {
  begin(tables, route);
  TGR_CHECK(pieces >= 1 && pieces <= kMostPieces && unit_ % pieces == 0, "gradients in ", pieces,
            " pieces of ", unit_, " columns; use up to ", kMostPieces, " that divide them");
  for (std::size_t t = 0; t < tables.size(); ++t) {
    TGR_CHECK(
        gradients[t].rows == route.tables[t].num_gradients && gradients[t].cols == tables_[t].width,
        "gradients are [", gradients[t].rows, ", ", gradients[t].cols, "]; wanted [",
        route.tables[t].num_gradients, ", ", tables_[t].width, "]");
  }
  send_return_lists(ctx, route);
  make_gradient_room(ctx);
  if (tables[0].options().gradient_wire == DType::kBf16) {
    return_as<bf16>(ctx, communicators, route, gradients, pieces);
  } else {
    return_as<float>(ctx, communicators, route, gradients, pieces);
  }
}

template void RowExchange::take_rows<float>(const Context&, std::size_t, Rows<float>) const;
template void RowExchange::take_rows<bf16>(const Context&, std::size_t, Rows<bf16>) const;

}  // namespace turbogr::embedding
