#include "turbogr/ops/rows/event_input.h"

#include "turbogr/ops/rows/event_input_kernels.h"

namespace turbogr::ops {
namespace {

template <class T, class A>
void check_event_input(const Context& ctx, const char* op, const EventSequences& sequences,
                       const EventTokens<T>& tokens, const EventTables<A>& tables,
                       const DropoutOptions& dropout, std::int64_t width) {
  check_event_sequences(ctx, op, sequences);
  check_rows(op, "prefix", tokens.prefix, sequences.batch() * sequences.num_prefix, width);
  check_rows(op, "events", tokens.events, sequences.num_events(), width);
  check_rows(op, "position", Rows<A>(tables.position), tables.position.shape[0], width);
  check_rows(op, "time", Rows<A>(tables.time), tables.time.shape[0], width);
  TGR_CHECK(tables.position.shape[0] > sequences.num_prefix, op, ": a position table of ",
            tables.position.shape[0], " rows for ", sequences.num_prefix,
            " prefix tokens; the targets' place comes after those");
  TGR_CHECK(tables.time.shape[0] > 0, op, ": a time table without rows; give at least 1");
  check_dropout(op, dropout, sequences.num_tokens());
}

}  // namespace

template <class T>
void event_input(const Context& ctx, const EventSequences& sequences,
                 const EventTokens<const T>& tokens, const EventTables<const Accum<T>>& tables,
                 const EventInputOptions& options, Rows<T> x) {
  const char* op = "event_input";
  check_event_input(ctx, op, sequences, tokens, tables, options.dropout, x.cols);
  check_rows(op, "x", x, sequences.num_tokens(), x.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::event_input<T>(device, sequences, tokens, tables, options, x);
  });
}

template <class T>
void event_input_backward(const Context& ctx, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables) {
  const char* op = "event_input_backward";
  check_event_input(ctx, op, sequences, dtokens, dtables, options.dropout, dx.cols);
  check_rows(op, "dx", dx, sequences.num_tokens(), dx.cols);
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::event_input_backward<T>(device, sequences, dx, options, dtokens, dtables);
  });
}

template <class T>
std::size_t event_input_workspace_bytes(const Context& ctx, std::int64_t tokens,
                                        std::int64_t width) {
  std::size_t bytes = 0;
  on_device(ctx, [&](auto device) {
    bytes = kernels::event_input_workspace_bytes<T>(device, tokens, width);
  });
  return bytes;
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void event_input<T>(const Context&, const EventSequences&, const EventTokens<const T>&, \
                               const EventTables<const Accum<T>>&, const EventInputOptions&,       \
                               Rows<T>);                                                           \
  template void event_input_backward<T>(const Context&, const EventSequences&, Rows<const T>,      \
                                        const EventInputOptions&, const EventTokens<T>&,           \
                                        const EventTables<Accum<T>>&);                             \
  template std::size_t event_input_workspace_bytes<T>(const Context&, std::int64_t, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
