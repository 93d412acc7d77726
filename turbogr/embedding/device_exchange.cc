#include "turbogr/embedding/device_exchange.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/embedding/counts.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::embedding {
namespace {

template <class T>
std::size_t room_for(const std::vector<T>& list) {
  return Feed::room<T>(list.size());
}

// Room for `count` rows of the device's memory; what was there is lost when it grows.
template <class T>
Rows<T> fit(const Context& ctx, Tensor& buffer, std::int64_t count, std::int64_t width) {
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(count * width, 1)) * sizeof(T);
  if (buffer.bytes() < bytes) {
    buffer = Tensor(DType::kU8, {static_cast<std::int64_t>(bytes + bytes / 4)}, ctx.device());
  }
  return {reinterpret_cast<T*>(buffer.data()), count, width, width};
}

// Where each id's row arrives.
std::vector<std::int64_t> places_of(const Route& route) {
  std::vector<std::int64_t> places(route.order.size());
  for (std::size_t k = 0; k < route.order.size(); ++k) {
    places[static_cast<std::size_t>(route.order[k])] = static_cast<std::int64_t>(k);
  }
  return places;
}

// Calls body with a value of the type rows travel in.
template <class Body>
void with_wire(DType wire, Body&& body) {
  if (wire == DType::kF32) {
    body(float{});
  } else {
    TGR_CHECK(wire == DType::kBf16, "rows of a GPU cannot travel as ", name_of(wire),
              "; use dist.rows = \"f32\" or \"bf16\"");
    body(bf16{});
  }
}

}  // namespace

void DeviceExchange::send_groups(const Context& ctx, const Route& route, bool joined) {
  std::size_t bytes = 0;
  const auto count = [&](const auto& list) { bytes += room_for(list); };
  count(route.order);
  count(route.rows);
  count(route.group_offsets);
  count(route.group_requests);
  if (joined) {
    count(route.touched);
    count(route.touched_offsets);
    count(route.touched_positions);
  }
  return_lists_.begin(ctx, bytes);
  const auto put = [&](const auto& list) { return return_lists_.place(list); };
  order_ = put(route.order);
  groups_ = {put(route.rows), put(route.group_offsets), put(route.group_requests)};
  touched_ = groups_.rows;
  if (joined) {
    joined_groups_ = {put(route.touched), put(route.touched_offsets), put(route.touched_positions)};
    touched_ = joined_groups_.rows;
  }
  return_lists_.send_all(ctx);
}

// out(i) = the row that arrived at places(i).
template <class T>
void DeviceExchange::unpack(const Context& ctx, DType wire, View<const std::int64_t, 1> places,
                            std::int64_t arrived, Rows<T> out) {
  with_wire(wire, [&](auto format) {
    using Wire = decltype(format);
    const Rows<const Wire> rows = {reinterpret_cast<const Wire*>(receiving_.data()), arrived,
                                   out.cols, out.cols};
    if constexpr (std::is_same_v<Wire, bf16> && std::is_same_v<T, float>) {
      const Rows<float> wide = fit<float>(ctx, wide_, arrived, out.cols);
      const std::int64_t values = arrived * out.cols;
      ops::convert_values<float, bf16>(ctx, {rows.data, {values}}, {wide.data, {values}});
      ops::gather_rows<float, T>(ctx, wide, places, out);
    } else {
      ops::gather_rows<Wire, T>(ctx, rows, places, out);
    }
  });
}

template <class T>
void DeviceExchange::fetch(const Context& ctx, const ShardedTable& table,
                           const TableCommunicators& communicators, const Route& route,
                           Rows<T> out) {
  const ShardedOptions& options = table.options();
  TGR_CHECK(out.rows == route.num_ids && out.cols == options.width, "rows wanted in [", out.rows,
            ", ", out.cols, "]; they are [", route.num_ids, ", ", options.width, "]");
  const std::vector<std::int64_t> places = places_of(route);
  fetch_lists_.begin(ctx, room_for(route.requests) + room_for(places));
  const View<const std::int64_t, 1> sent_requests = fetch_lists_.place(route.requests);
  const View<const std::int64_t, 1> sent_places = fetch_lists_.place(places);
  fetch_lists_.send_all(ctx);
  with_wire(options.row_wire, [&](auto format) {
    using Wire = decltype(format);
    const Rows<Wire> sending = fit<Wire>(ctx, sending_, std::ssize(route.requests), options.width);
    table.own().gather<Wire>(ctx, sent_requests, sending);
    // Room for rows that are fetched again, behind these.
    fit<Wire>(ctx, receiving_, 2 * route.num_ids, options.width);
  });
  const auto row_bytes = options.width * static_cast<std::int64_t>(size_of(options.row_wire));
  communicators.group->all_to_all({sending_.data(), times(route.asked_by, row_bytes)},
                                  {receiving_.data(), times(route.asked_of, row_bytes)});
  unpack<T>(ctx, options.row_wire, sent_places, route.num_ids, out);
}

// What changed arrives behind what was fetched before, and all is unpacked again.
template <class T>
void DeviceExchange::fetch_changed(const Context& ctx, const ShardedTable& table,
                                   const TableCommunicators& communicators, const Refresh& refresh,
                                   const Route& route, Rows<T> out) {
  const ShardedOptions& options = table.options();
  std::vector<std::int64_t> requests(refresh.requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i] = route.requests[static_cast<std::size_t>(refresh.requests[i])];
  }
  std::vector<std::int64_t> places = places_of(route);
  for (std::size_t i = 0; i < refresh.positions.size(); ++i) {
    places[static_cast<std::size_t>(refresh.positions[i])] =
        route.num_ids + static_cast<std::int64_t>(i);
  }
  changed_lists_.begin(ctx, room_for(requests) + room_for(places));
  const View<const std::int64_t, 1> sent_requests = changed_lists_.place(requests);
  const View<const std::int64_t, 1> sent_places = changed_lists_.place(places);
  changed_lists_.send_all(ctx);
  with_wire(options.row_wire, [&](auto format) {
    using Wire = decltype(format);
    const Rows<Wire> sending = fit<Wire>(ctx, sending_, std::ssize(requests), options.width);
    table.own().gather<Wire>(ctx, sent_requests, sending);
  });
  const auto row_bytes = options.width * static_cast<std::int64_t>(size_of(options.row_wire));
  communicators.group->all_to_all(
      {sending_.data(), times(refresh.give, row_bytes)},
      {receiving_.data() + route.num_ids * row_bytes, times(refresh.take, row_bytes)});
  unpack<T>(ctx, options.row_wire, sent_places, route.num_ids + std::ssize(refresh.positions), out);
}

void DeviceExchange::return_gradients(const Context& ctx, const ShardedTable& table,
                                      const TableCommunicators& communicators, const Route& route,
                                      Rows<const float> gradient) {
  const ShardedOptions& options = table.options();
  TGR_CHECK(gradient.rows == route.num_gradients && gradient.cols == options.width,
            "gradients are [", gradient.rows, ", ", gradient.cols, "]; wanted [",
            route.num_gradients, ", ", options.width, "]");
  const std::int64_t width = options.width;
  const auto row_bytes = width * static_cast<std::int64_t>(size_of(options.gradient_wire));
  const auto requests = std::ssize(route.requests);
  const auto own_count = std::ssize(route.rows);
  const bool joined = communicators.num_replicas() > 1 && options.replicas == ReplicaMode::kExact;
  send_groups(ctx, route, joined);
  with_wire(options.gradient_wire, [&](auto format) {
    using Wire = decltype(format);
    const auto sum_up = [&](std::int64_t count, const Groups& groups, Rows<float> sums) {
      ctx.workspace().reserve(ops::sum_groups_workspace_bytes<Wire>(ctx, count, width));
      ops::sum_duplicate_rows<Wire>(
          ctx,
          Rows<const Wire>(reinterpret_cast<const Wire*>(receiving_.data()), count, width, width),
          {groups.rows, groups.offsets, groups.positions}, sums);
    };
    const Rows<Wire> sending = fit<Wire>(ctx, sending_, route.num_ids, width);
    ops::gather_rows<float, Wire, std::int32_t>(ctx, gradient, order_, sending);
    fit<Wire>(ctx, receiving_, requests, width);
    communicators.group->all_to_all({sending_.data(), times(route.asked_of, row_bytes)},
                                    {receiving_.data(), times(route.asked_by, row_bytes)});
    const Rows<float> sums = fit<float>(ctx, sums_, own_count, width);
    sum_up(requests, groups_, sums);
    gradients_ = sums;
    if (!joined) return;

    // Replicas exchange sums of rows already deduplicated, and add them in the order of groups.
    const std::int64_t all = sum_of(route.replica_counts);
    const void* own = sums.data;
    if constexpr (std::is_same_v<Wire, bf16>) {
      const Rows<bf16> rounded = fit<bf16>(ctx, sending_, own_count, width);
      const std::int64_t values = own_count * width;
      ops::convert_values<bf16, float>(ctx, {sums.data, {values}}, {rounded.data, {values}});
      own = rounded.data;
    }
    fit<Wire>(ctx, receiving_, all, width);
    communicators.replicas->all_gather(own,
                                       {receiving_.data(), times(route.replica_counts, row_bytes)});
    const Rows<float> joined_sums = fit<float>(ctx, joined_sums_, std::ssize(route.touched), width);
    sum_up(all, joined_groups_, joined_sums);
    gradients_ = joined_sums;
  });
}

void DeviceExchange::update(const Context& ctx, ShardedTable& table, const AdamWSettings& settings,
                            const ops::StepScale* scale, int num_replicas) {
  table.update(ctx, touched_, gradients_, settings, scale, num_replicas);
}

PlannedBytes DeviceExchange::bytes() const {
  PlannedBytes bytes;
  for (const Feed* feed : {&fetch_lists_, &changed_lists_, &return_lists_}) bytes += feed->bytes();
  for (const Tensor* tensor : {&sending_, &receiving_, &wide_, &sums_, &joined_sums_}) {
    bytes.add(*tensor);
  }
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                  \
  template void DeviceExchange::fetch<T>(const Context&, const ShardedTable&,               \
                                         const TableCommunicators&, const Route&, Rows<T>); \
  template void DeviceExchange::fetch_changed<T>(const Context&, const ShardedTable&,       \
                                                 const TableCommunicators&, const Refresh&, \
                                                 const Route&, Rows<T>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::embedding
