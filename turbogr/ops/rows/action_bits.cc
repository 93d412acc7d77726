#include "turbogr/ops/rows/action_bits.h"

#include "turbogr/ops/rows/action_bits_kernels.h"

namespace turbogr::ops {
namespace {

template <class A>
void check_action_bits(const Context& ctx, const char* op, const EventSequences& sequences,
                       const ActionBlocks<A>& blocks, View<const std::uint32_t, 1> masks) {
  check_event_sequences(ctx, op, sequences);
  const std::int64_t bits = blocks.table.shape[0];
  TGR_CHECK(bits >= 1 && bits <= 32, op, ": a table of ", bits,
            " rows; a mask has a bit for 1 to 32");
  check_vector(op, "target", blocks.target, blocks.table.size());
  check_vector(op, "masks", masks, sequences.num_events());
}

}  // namespace

template <class T>
void action_bits(const Context& ctx, const EventSequences& sequences,
                 const ActionBlocks<const Accum<T>>& blocks, View<const std::uint32_t, 1> masks,
                 Rows<T> rows) {
  const char* op = "action_bits";
  check_action_bits(ctx, op, sequences, blocks, masks);
  check_rows(op, "rows", rows, sequences.num_events(), blocks.table.size());
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx,
            [&](auto device) { kernels::action_bits<T>(device, sequences, blocks, masks, rows); });
}

template <class T>
void action_bits_backward(const Context& ctx, const EventSequences& sequences,
                          View<const std::uint32_t, 1> masks, Rows<const T> drows,
                          const ActionBlocks<Accum<T>>& dblocks) {
  const char* op = "action_bits_backward";
  check_action_bits(ctx, op, sequences, dblocks, masks);
  check_rows(op, "drows", drows, sequences.num_events(), dblocks.table.size());
  const SectionScope section = section_scope(ctx, Section::kElementwise);
  on_device(ctx, [&](auto device) {
    kernels::action_bits_backward<T>(device, sequences, masks, drows, dblocks);
  });
}

template <class T>
std::size_t action_bits_workspace_bytes(const Context& ctx, std::int64_t cols) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) {
      return kernels::action_bits_workspace_bytes<T>(Cuda{ctx.stream(), ctx.workspace()}, cols);
    }
  }
  return 0;
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void action_bits<T>(const Context&, const EventSequences&,                             \
                               const ActionBlocks<const Accum<T>>&, View<const std::uint32_t, 1>, \
                               Rows<T>);                                                          \
  template void action_bits_backward<T>(const Context&, const EventSequences&,                    \
                                        View<const std::uint32_t, 1>, Rows<const T>,              \
                                        const ActionBlocks<Accum<T>>&);                           \
  template std::size_t action_bits_workspace_bytes<T>(const Context&, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
