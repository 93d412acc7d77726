#include <algorithm>
#include <cstring>

#include "turbogr/ops/jagged_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// Calls function(sequence, row, count) for runs of rows of the jagged batch with these offsets,
// row counted from the sequence's start. Cut by tokens, so uneven sequences spread evenly.
template <class Function>
void for_each_run(Cpu cpu, Offsets offsets, Function&& function) {
  const std::int64_t* first = offsets.data;
  const std::int64_t batch = offsets.shape[0] - 1;
  parallel_ranges(cpu.pool, offsets(batch), 256, [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t sequence = std::upper_bound(first, first + batch, begin) - first - 1;
    while (begin < end) {
      const std::int64_t stop = std::min(end, first[sequence + 1]);
      if (stop > begin) function(sequence, begin - first[sequence], stop - begin);
      begin = std::max(begin, stop);
      ++sequence;
    }
  });
}

template <class T>
void copy_rows(Rows<const T> from, std::int64_t from_row, std::int64_t count, Rows<T> to,
               std::int64_t to_row) {
  const auto bytes = static_cast<std::size_t>(to.cols) * sizeof(T);
  if (bytes == 0 || count <= 0) return;
  for (std::int64_t r = 0; r < count; ++r) {
    std::memcpy(static_cast<void*>(to.row(to_row + r)), from.row(from_row + r), bytes);
  }
}

template <class T>
void zero_rows(Rows<T> to, std::int64_t to_row, std::int64_t count) {
  for (std::int64_t r = 0; r < count; ++r) {
    T* row = to.row(to_row + r);
    std::fill(row, row + to.cols, convert<T>(0.0f));
  }
}

// Where a run of `count` rows from `row` of the joined sequence meets its first `cut` rows: how
// many of the run lie before the cut.
std::int64_t before_cut(std::int64_t row, std::int64_t count, std::int64_t cut) {
  return std::clamp(cut - row, std::int64_t{0}, count);
}

}  // namespace

template <class T>
void jagged_concat(Cpu cpu, Jagged<const T> a, Jagged<const T> b, Jagged<T> whole) {
  for_each_run(cpu, whole.offsets, [&](std::int64_t s, std::int64_t row, std::int64_t count) {
    const std::int64_t cut = a.offsets(s + 1) - a.offsets(s);
    const std::int64_t from_a = before_cut(row, count, cut);
    const std::int64_t to = whole.offsets(s) + row;
    copy_rows<T>(a.values, a.offsets(s) + row, from_a, whole.values, to);
    copy_rows<T>(b.values, b.offsets(s) + row + from_a - cut, count - from_a, whole.values,
                 to + from_a);
  });
}

template <class T>
void jagged_split(Cpu cpu, Jagged<const T> whole, Jagged<T> a, Jagged<T> b) {
  for_each_run(cpu, whole.offsets, [&](std::int64_t s, std::int64_t row, std::int64_t count) {
    const std::int64_t cut = a.offsets(s + 1) - a.offsets(s);
    const std::int64_t to_a = before_cut(row, count, cut);
    const std::int64_t from = whole.offsets(s) + row;
    copy_rows<T>(whole.values, from, to_a, a.values, a.offsets(s) + row);
    copy_rows<T>(whole.values, from + to_a, count - to_a, b.values,
                 b.offsets(s) + row + to_a - cut);
  });
}

template <class T>
void last_k_rows(Cpu cpu, Jagged<const T> x, Jagged<T> out) {
  for_each_run(cpu, out.offsets, [&](std::int64_t s, std::int64_t row, std::int64_t count) {
    const std::int64_t kept = out.offsets(s + 1) - out.offsets(s);
    copy_rows<T>(x.values, x.offsets(s + 1) - kept + row, count, out.values, out.offsets(s) + row);
  });
}

template <class T>
void last_k_rows_backward(Cpu cpu, Jagged<const T> dout, Jagged<T> dx) {
  for_each_run(cpu, dx.offsets, [&](std::int64_t s, std::int64_t row, std::int64_t count) {
    const std::int64_t kept = dout.offsets(s + 1) - dout.offsets(s);
    const std::int64_t dropped = dx.offsets(s + 1) - dx.offsets(s) - kept;
    const std::int64_t zeros = before_cut(row, count, dropped);
    const std::int64_t to = dx.offsets(s) + row;
    zero_rows<T>(dx.values, to, zeros);
    copy_rows<T>(dout.values, dout.offsets(s) + row + zeros - dropped, count - zeros, dx.values,
                 to + zeros);
  });
}

template <class T>
void to_padded(Cpu cpu, Jagged<const T> x, View<T, 3> out) {
  const std::int64_t length = out.shape[1];
  const Rows<T> rows = View<T, 2>{out.data, {out.shape[0] * length, out.shape[2]}};
  parallel_for(cpu.pool, out.shape[0], [&](std::int64_t s, int) {
    const std::int64_t count = x.offsets(s + 1) - x.offsets(s);
    copy_rows<T>(x.values, x.offsets(s), count, rows, s * length);
    zero_rows<T>(rows, s * length + count, length - count);
  });
}

template <class T>
void from_padded(Cpu cpu, View<const T, 3> x, Jagged<T> out) {
  const std::int64_t length = x.shape[1];
  const Rows<const T> rows = View<const T, 2>{x.data, {x.shape[0] * length, x.shape[2]}};
  for_each_run(cpu, out.offsets, [&](std::int64_t s, std::int64_t row, std::int64_t count) {
    copy_rows<T>(rows, s * length + row, count, out.values, out.offsets(s) + row);
  });
}

#define TGR_INSTANTIATE(T)                                                          \
  template void jagged_concat<T>(Cpu, Jagged<const T>, Jagged<const T>, Jagged<T>); \
  template void jagged_split<T>(Cpu, Jagged<const T>, Jagged<T>, Jagged<T>);        \
  template void last_k_rows<T>(Cpu, Jagged<const T>, Jagged<T>);                    \
  template void last_k_rows_backward<T>(Cpu, Jagged<const T>, Jagged<T>);           \
  template void to_padded<T>(Cpu, Jagged<const T>, View<T, 3>);                     \
  template void from_padded<T>(Cpu, View<const T, 3>, Jagged<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
