#include "turbogr/embedding/row_cache.h"

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"

namespace turbogr::embedding {
namespace {

// Weights [N, D] and moments [N, D] or [N], each as rows.
Rows<float> rows_of(Tensor& part) {
  const std::int64_t rows = part.shape()[0];
  const std::int64_t width = part.shape().size() == 2 ? part.shape()[1] : 1;
  return {reinterpret_cast<float*>(part.data()), rows, width, width};
}

// Calls move(rows of `from`, rows of `to`) for weights and what the optimiser keeps beside them.
template <class Move>
void for_each_part(ItemTable& from, ItemTable& to, const Move& move) {
  move(rows_of(from.weight_tensor()), rows_of(to.weight_tensor()));
  if (from.has_first_moment()) move(rows_of(from.first_moment()), rows_of(to.first_moment()));
  if (from.has_second_moment()) move(rows_of(from.second_moment()), rows_of(to.second_moment()));
}

template <class To, class From>
Tensor list_on(const Context& ctx, DType dtype, std::span<const From> values) {
  Tensor host(dtype, {std::ssize(values)});
  std::ranges::copy(values, reinterpret_cast<To*>(host.data()));
  Tensor list(dtype, {std::ssize(values)}, ctx.device());
  copy_tensor(ctx, list, host);
  return list;
}

}  // namespace

std::vector<std::int64_t> most_used_rows(std::span<const std::int64_t> counts, std::int64_t most) {
  std::vector<std::int64_t> ids;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) ids.push_back(static_cast<std::int64_t>(id));
  }
  const auto kept = std::min<std::int64_t>(most, std::ssize(ids));
  std::nth_element(ids.begin(), ids.begin() + kept, ids.end(), [&](auto a, auto b) {
    const std::int64_t of_a = counts[static_cast<std::size_t>(a)];
    const std::int64_t of_b = counts[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  ids.resize(static_cast<std::size_t>(kept));
  std::ranges::sort(ids);
  return ids;
}

RowCache::RowCache(const Context& ctx, std::int64_t table_rows, std::int64_t width,
                   SparseOptimiser optimiser, std::span<const std::int64_t> rows)
    : copies_(std::ssize(rows), width, optimiser, ctx.device()) {
  if (rows.empty()) return;
  slots_.assign(static_cast<std::size_t>(table_rows), -1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TGR_CHECK(rows[i] >= 0 && rows[i] < table_rows, "row ", rows[i],
              " for the cache of a table of ", table_rows, " rows");
    slots_[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(i);
  }
  ids_ = list_on<std::int64_t>(ctx, DType::kI64, rows);
  places_ = list_on<std::int32_t>(ctx, DType::kI32, rows);
}

void RowCache::load(const Context& ctx, ItemTable& table) {
  if (empty()) return;
  const View<const std::int64_t, 1> ids = ids_.view<std::int64_t, 1>();
  for_each_part(table, copies_, [&](Rows<float> from, Rows<float> to) {
    ops::gather_rows<float>(ctx, from, ids, to);
  });
}

void RowCache::write_back(const Context& ctx, ItemTable& table) {
  if (empty()) return;
  const View<const std::int32_t, 1> places = places_.view<std::int32_t, 1>();
  for_each_part(copies_, table, [&](Rows<float> from, Rows<float> to) {
    ops::place_rows<float>(ctx, from, places, to);
  });
}

PlannedBytes RowCache::bytes() const {
  PlannedBytes bytes;
  bytes.host += slots_.size() * sizeof(std::int32_t);
  if (empty()) return bytes;
  bytes.add(ids_);
  bytes.add(places_);
  bytes.add(ids_.device(), copies_.bytes());
  return bytes;
}

}  // namespace turbogr::embedding
