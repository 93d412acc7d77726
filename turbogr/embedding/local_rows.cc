#include "turbogr/embedding/local_rows.h"

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::embedding {

template <class T>
LocalRows<T>::LocalRows(const std::vector<TableOptions>& tables, Device memory)
    : options_(tables), memory_(memory) {
  for (const TableOptions& table : tables) {
    TGR_CHECK(table.dtype == DType::kF32 || memory != Device::kPinned, "a table in ",
              name_of(table.dtype),
              " in the host's memory; use embedding.dtype = \"f32\", or "
              "embedding.memory = \"device\"");
    tables_.emplace_back(table.rows, table.width, table.optimiser, memory, table.dtype);
    half_copies_.push_back(table.half_copy ? HalfTable(table.rows, table.width, memory)
                                           : HalfTable());
    whole_.emplace_back(table.rows, 1, Placement::kRoundRobin);
    tables_.back().set_keys(whole_.back().keys_of(0, table.seed));
  }
}

template <class T>
void LocalRows<T>::initialise(const Context& ctx) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].initialise(ctx, options_[t].seed, options_[t].start);
  }
  refresh_copies(ctx);
}

template <class T>
void LocalRows<T>::refresh_copies(const Context& ctx) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (!half_copies_[t].empty()) half_copies_[t].assign(ctx, tables_[t].weights());
  }
  if (memory_ == Device::kPinned) synchronize(ctx);  // the host reads the table
}

template <class T>
std::unique_ptr<RowRequest> LocalRows<T>::make_request(const Context& ctx,
                                                       std::span<const std::int64_t> most) const {
  auto request = std::make_unique<Request>();
  request->sent_ids.reserve(tables_.size());
  request->gradients.reserve(tables_.size());
  std::size_t bytes = 0;
  for (const std::int64_t ids : most) {
    bytes += Feed::room<std::int64_t>(static_cast<std::size_t>(ids));
  }
  if (ctx.device() == Device::kCuda) request->feed = Feed(ctx, bytes);
  return request;
}

template <class T>
void LocalRows<T>::prepare(const Context&, Lane, const StepIds& ids, RowRequest& request) {
  static_cast<Request&>(request).ids = ids;
}

template <class T>
void LocalRows<T>::send_ids(const Context& ctx, Request& request) {
  request.sent_ids.clear();
  if (ctx.device() == Device::kCpu) {
    for (const TouchedRows& touched : request.ids.tables) request.sent_ids.push_back(touched.ids());
    return;
  }
  request.feed.begin();
  for (const TouchedRows& touched : request.ids.tables) {
    request.sent_ids.push_back(request.feed.put(ctx, touched.ids()));
  }
  request.feed.end(ctx);
}

template <class T>
void LocalRows<T>::fetch(const Context& ctx, Lane, RowRequest& given,
                         std::span<const StepRows<T>> out) {
  auto& request = static_cast<Request&>(given);
  send_ids(ctx, request);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const View<const std::int64_t, 1> ids = request.sent_ids[t];
    tables_[t].template gather<T>(ctx, {ids.data, {out[t].rows.rows}}, out[t].rows);
    if (out[t].half.values.data == nullptr) continue;
    if (half_copies_[t].empty()) {
      ops::gather_half_rows(ctx, tables_[t].weights(), ids, out[t].half);
    } else {
      ops::gather_half_rows(ctx, half_copies_[t].rows(), ids, out[t].half);
    }
  }
}

template <class T>
void LocalRows<T>::return_gradients(const Context& ctx, Lane, RowRequest& given, Part,
                                    std::span<const Rows<const float>> gradients, double* squares) {
  auto& request = static_cast<Request&>(given);
  request.gradients.assign(gradients.begin(), gradients.end());
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const View<const float, 1> all = {gradients[t].data, {gradients[t].rows * gradients[t].cols}};
    ctx.workspace().reserve(ops::squared_sum_workspace_bytes(ctx, all.shape[0]));
    ops::squared_sum(ctx, all, squares + t);
  }
}

template <class T>
void LocalRows<T>::update(const Context& ctx, Lane, RowRequest& given, Part,
                          std::span<const AdamWSettings> settings, const ops::StepScale* scale) {
  auto& request = static_cast<Request&>(given);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    tables_[t].update(ctx, request.sent_ids[t], request.gradients[t], settings[t], scale);
    if (!half_copies_[t].empty()) {
      half_copies_[t].refresh(ctx, tables_[t].weights(), request.sent_ids[t]);
    }
  }
}

template <class T>
void LocalRows<T>::gather(const Context& ctx, std::size_t table, View<const std::int64_t, 1> ids,
                          Rows<T> out) {
  gather_feed_.begin(ctx, Feed::room<std::int64_t>(static_cast<std::size_t>(ids.shape[0])));
  tables_[table].template gather<T>(ctx, gather_feed_.put(ctx, ids), out);
  gather_feed_.end(ctx);
}

template <class T>
PlannedBytes LocalRows<T>::bytes() const {
  PlannedBytes bytes;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    bytes.add(memory_, tables_[t].bytes() + half_copies_[t].bytes());
  }
  return bytes;
}

template class LocalRows<float>;
template class LocalRows<bf16>;

}  // namespace turbogr::embedding
