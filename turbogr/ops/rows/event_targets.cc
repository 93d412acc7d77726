#include "turbogr/ops/rows/event_targets.h"

#include "turbogr/ops/rows/event_targets_kernels.h"

namespace turbogr::ops {
namespace {

template <class T>
void check_places(const Context& ctx, const char* op, Rows<const T> rows,
                  View<const std::int64_t, 1> places, Rows<T> out) {
  check_rows(op, "rows", rows, rows.rows, rows.cols);
  check_vector(op, "places", places, rows.rows);
  check_rows(op, "out", out, out.rows, rows.cols);
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t i = 0; i < places.shape[0]; ++i) {
    TGR_CHECK(places(i) >= 0 && places(i) < out.rows, op, ": place ", places(i), " of row ", i,
              " for ", out.rows, " rows of out; it must be at least 0 and below that");
  }
}

}  // namespace

void find_targets(const Context& ctx, const EventSequences& sequences,
                  View<const std::uint64_t, 1> row_keys, const EventTargets& targets) {
  const char* op = "find_targets";
  check_event_sequences(ctx, op, sequences);
  std::int64_t count = targets.tokens.shape[0];
  if (ctx.device() == Device::kCpu) {
    count = 0;
    for (std::int64_t b = 0; b < sequences.batch(); ++b) count += sequences.num_targets(b);
  }
  check_vector(op, "tokens", targets.tokens, count);
  check_vector(op, "events", targets.events, count);
  check_vector(op, "times", targets.times, count);
  check_vector(op, "keys", targets.keys, count);
  check_vector(op, "starts", targets.starts, sequences.batch() + 1);
  if (row_keys.shape[0] != 0) check_vector(op, "row_keys", row_keys, sequences.num_tokens());
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::find_targets(device, sequences, row_keys, targets); });
}

template <class T>
void spread_rows(const Context& ctx, Rows<const T> rows, View<const std::int64_t, 1> places,
                 Rows<T> out) {
  check_places(ctx, "spread_rows", rows, places, out);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::spread_rows<T>(device, rows, places, out); });
}

template <class T>
void add_rows_at(const Context& ctx, Rows<const T> rows, View<const std::int64_t, 1> places,
                 Rows<T> out) {
  check_places(ctx, "add_rows_at", rows, places, out);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) { kernels::add_rows_at<T>(device, rows, places, out); });
}

#define TGR_INSTANTIATE(T)                                                                 \
  template void spread_rows<T>(const Context&, Rows<const T>, View<const std::int64_t, 1>, \
                               Rows<T>);                                                   \
  template void add_rows_at<T>(const Context&, Rows<const T>, View<const std::int64_t, 1>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
