#include <algorithm>

#include "turbogr/ops/rows/action_bits_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// Calls body(event, is_target) for the events of one sequence in order.
template <class Body>
void over_events(const EventSequences& sequences, std::int64_t b, Body&& body) {
  const EventSequence at = event_sequence(sequences, b);
  for (std::int64_t j = 0; j < at.events(); ++j) body(at.event + j, j >= at.history);
}

bool has(std::uint32_t mask, std::int64_t bit) { return (mask >> bit & 1u) != 0; }

}  // namespace

template <class T>
void action_bits(Cpu cpu, const EventSequences& sequences,
                 const ActionBlocks<const Accum<T>>& blocks, View<const std::uint32_t, 1> masks,
                 Rows<T> rows) {
  const std::int64_t bits = blocks.table.shape[0], width = blocks.table.shape[1];
  parallel_for(cpu.pool, sequences.batch(), [&](std::int64_t b, int) {
    over_events(sequences, b, [&](std::int64_t event, bool is_target) {
      for (std::int64_t bit = 0; bit < bits; ++bit) {
        T* row = rows.row(event) + bit * width;
        if (!is_target && !has(masks(event), bit)) {
          std::fill_n(row, width, T(0));
          continue;
        }
        const Accum<T>* from = is_target ? &blocks.target(bit * width) : &blocks.table(bit, 0);
        for (std::int64_t c = 0; c < width; ++c) row[c] = convert<T>(from[c]);
      }
    });
  });
}

template <class T>
void action_bits_backward(Cpu cpu, const EventSequences& sequences,
                          View<const std::uint32_t, 1> masks, Rows<const T> drows,
                          const ActionBlocks<Accum<T>>& dblocks) {
  using A = Accum<T>;
  const std::int64_t width = dblocks.table.shape[1];
  // A thread has all events of one bit.
  parallel_for(cpu.pool, dblocks.table.shape[0], [&](std::int64_t bit, int) {
    A* const dtable = &dblocks.table(bit, 0);
    A* const dtarget = &dblocks.target(bit * width);
    for (std::int64_t b = 0; b < sequences.batch(); ++b) {
      over_events(sequences, b, [&](std::int64_t event, bool is_target) {
        if (!is_target && !has(masks(event), bit)) return;
        A* const sums = is_target ? dtarget : dtable;
        const T* d = drows.row(event) + bit * width;
        for (std::int64_t c = 0; c < width; ++c) sums[c] += convert<A>(d[c]);
      });
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                        \
  template void action_bits<T>(Cpu, const EventSequences&, const ActionBlocks<const Accum<T>>&,   \
                               View<const std::uint32_t, 1>, Rows<T>);                            \
  template void action_bits_backward<T>(Cpu, const EventSequences&, View<const std::uint32_t, 1>, \
                                        Rows<const T>, const ActionBlocks<Accum<T>>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
