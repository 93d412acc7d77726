#include <algorithm>

#include "turbogr/core/dtype.h"
#include "turbogr/ops/rows/event_targets_kernels.h"

namespace turbogr::ops::kernels {

void find_targets(Cpu, const EventSequences& sequences, View<const std::uint64_t, 1> row_keys,
                  const EventTargets& targets) {
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < sequences.batch(); ++b) {
    targets.starts(b) = i;
    const EventSequence at = event_sequence(sequences, b);
    for (std::int64_t j = at.history; j < at.events(); ++j, ++i) {
      const std::int64_t token = at.token + sequences.num_prefix + j;
      targets.tokens(i) = token;
      targets.keys(i) = row_keys.empty() ? static_cast<std::uint64_t>(token) : row_keys(token);
      targets.events(i) = at.event + j;
      targets.times(i) = sequences.times(at.event + j);
    }
  }
  targets.starts(sequences.batch()) = i;
}

template <class T>
void spread_rows(Cpu cpu, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out) {
  parallel_ranges(cpu.pool, out.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::fill_n(out.row(r), out.cols, convert<T>(Accum<T>(0)));
    }
  });
  parallel_ranges(cpu.pool, rows.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::copy_n(rows.row(i), rows.cols, out.row(places(i)));
    }
  });
}

template <class T>
void add_rows_at(Cpu cpu, Rows<const T> rows, View<const std::int64_t, 1> places, Rows<T> out) {
  using A = Accum<T>;
  parallel_ranges(cpu.pool, rows.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      T* sums = out.row(places(i));
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        sums[c] = convert<T>(convert<A>(sums[c]) + convert<A>(rows(i, c)));
      }
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                \
  template void spread_rows<T>(Cpu, Rows<const T>, View<const std::int64_t, 1>, Rows<T>); \
  template void add_rows_at<T>(Cpu, Rows<const T>, View<const std::int64_t, 1>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
