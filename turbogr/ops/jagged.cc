#include "turbogr/ops/jagged.h"

#include <algorithm>

#include "turbogr/ops/checks.h"
#include "turbogr/ops/jagged_kernels.h"

namespace turbogr::ops {
namespace {

// Offsets are made where their values can be returned.
void check_host(const Context& ctx, const char* op) {
  TGR_CHECK(ctx.device() == Device::kCpu, op,
            ": runs on the CPU only; give it ctx.host() and host memory");
}

template <class T>
void check_jagged(const Context& ctx, const char* op, const char* name, Jagged<T> x,
                  std::int64_t batch, std::int64_t width) {
  check_offsets(ctx, op, x.offsets, x.tokens());
  TGR_CHECK(x.batch() == batch, op, ": ", name, " has ", x.batch(), " sequences; wanted ", batch);
  check_rows(op, name, x.values, x.tokens(), width);
}

void check_sum(const Context& ctx, const char* op, Offsets a, Offsets b, Offsets whole) {
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t s = 0; s < whole.shape[0]; ++s) {
    TGR_CHECK(whole(s) == a(s) + b(s), op, ": offset ", s, " of the joined batch is ", whole(s),
              " for parts at ", a(s), " and ", b(s), "; make it with concat_offsets");
  }
}

void check_last_k(const Context& ctx, const char* op, Offsets x, std::int64_t k, Offsets out) {
  TGR_CHECK(k >= 0, op, ": k is ", k, "; it must not be negative");
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t s = 0; s + 1 < x.shape[0]; ++s) {
    const std::int64_t wanted = std::min(k, x(s + 1) - x(s));
    TGR_CHECK(out(s + 1) - out(s) == wanted, op, ": sequence ", s, " keeps ", out(s + 1) - out(s),
              " rows; wanted ", wanted, ", make the offsets with last_k_offsets");
  }
}

template <class T, class U>
void check_padded(const Context& ctx, const char* op, Jagged<T> x, View<U, 3> padded) {
  check_jagged(ctx, op, "the jagged side", x, padded.shape[0], padded.shape[2]);
  TGR_CHECK(padded.data != nullptr || padded.size() == 0, op,
            ": the padded side has no memory; give it a buffer");
  if (ctx.device() != Device::kCpu) return;
  for (std::int64_t s = 0; s < x.batch(); ++s) {
    const std::int64_t length = x.offsets(s + 1) - x.offsets(s);
    TGR_CHECK(length <= padded.shape[1], op, ": sequence ", s, " has ", length,
              " rows for a padded length of ", padded.shape[1], "; pad to the longest");
  }
}

}  // namespace

std::int64_t offsets_from_lengths(const Context& ctx, View<const std::int64_t, 1> lengths,
                                  View<std::int64_t, 1> offsets) {
  check_host(ctx, "offsets_from_lengths");
  check_vector("offsets_from_lengths", "lengths", lengths, lengths.shape[0]);
  check_vector("offsets_from_lengths", "offsets", offsets, lengths.shape[0] + 1);
  offsets(0) = 0;
  for (std::int64_t s = 0; s < lengths.shape[0]; ++s) {
    TGR_CHECK(lengths(s) >= 0, "offsets_from_lengths: sequence ", s, " has length ", lengths(s),
              "; a length must not be negative");
    offsets(s + 1) = offsets(s) + lengths(s);
  }
  return offsets(lengths.shape[0]);
}

std::int64_t concat_offsets(const Context& ctx, Offsets a, Offsets b,
                            View<std::int64_t, 1> offsets) {
  check_host(ctx, "concat_offsets");
  check_vector("concat_offsets", "b", b, a.shape[0]);
  check_vector("concat_offsets", "offsets", offsets, a.shape[0]);
  check_offsets(ctx, "concat_offsets", a, a.shape[0] > 0 ? a(a.shape[0] - 1) : 0);
  check_offsets(ctx, "concat_offsets", b, b(b.shape[0] - 1));
  for (std::int64_t s = 0; s < a.shape[0]; ++s) offsets(s) = a(s) + b(s);
  return offsets(a.shape[0] - 1);
}

std::int64_t last_k_offsets(const Context& ctx, Offsets x, std::int64_t k,
                            View<std::int64_t, 1> offsets) {
  check_host(ctx, "last_k_offsets");
  TGR_CHECK(k >= 0, "last_k_offsets: k is ", k, "; it must not be negative");
  check_vector("last_k_offsets", "offsets", offsets, x.shape[0]);
  check_offsets(ctx, "last_k_offsets", x, x.shape[0] > 0 ? x(x.shape[0] - 1) : 0);
  offsets(0) = 0;
  for (std::int64_t s = 0; s + 1 < x.shape[0]; ++s) {
    offsets(s + 1) = offsets(s) + std::min(k, x(s + 1) - x(s));
  }
  return offsets(x.shape[0] - 1);
}

template <class T>
void jagged_concat(const Context& ctx, Jagged<const T> a, Jagged<const T> b, Jagged<T> out) {
  check_jagged(ctx, "jagged_concat", "a", a, out.batch(), out.width());
  check_jagged(ctx, "jagged_concat", "b", b, out.batch(), out.width());
  check_jagged(ctx, "jagged_concat", "out", out, out.batch(), out.width());
  check_sum(ctx, "jagged_concat", a.offsets, b.offsets, out.offsets);
  on_device(ctx, [&](auto device) { kernels::jagged_concat<T>(device, a, b, out); });
}

template <class T>
void jagged_split(const Context& ctx, Jagged<const T> x, Jagged<T> a, Jagged<T> b) {
  check_jagged(ctx, "jagged_split", "x", x, x.batch(), x.width());
  check_jagged(ctx, "jagged_split", "a", a, x.batch(), x.width());
  check_jagged(ctx, "jagged_split", "b", b, x.batch(), x.width());
  check_sum(ctx, "jagged_split", a.offsets, b.offsets, x.offsets);
  on_device(ctx, [&](auto device) { kernels::jagged_split<T>(device, x, a, b); });
}

template <class T>
void last_k_rows(const Context& ctx, Jagged<const T> x, std::int64_t k, Jagged<T> out) {
  check_jagged(ctx, "last_k_rows", "x", x, x.batch(), x.width());
  check_jagged(ctx, "last_k_rows", "out", out, x.batch(), x.width());
  check_last_k(ctx, "last_k_rows", x.offsets, k, out.offsets);
  on_device(ctx, [&](auto device) { kernels::last_k_rows<T>(device, x, out); });
}

template <class T>
void last_k_rows_backward(const Context& ctx, Jagged<const T> dout, std::int64_t k, Jagged<T> dx) {
  check_jagged(ctx, "last_k_rows_backward", "dx", dx, dx.batch(), dx.width());
  check_jagged(ctx, "last_k_rows_backward", "dout", dout, dx.batch(), dx.width());
  check_last_k(ctx, "last_k_rows_backward", dx.offsets, k, dout.offsets);
  on_device(ctx, [&](auto device) { kernels::last_k_rows_backward<T>(device, dout, dx); });
}

template <class T>
void to_padded(const Context& ctx, Jagged<const T> x, View<T, 3> out) {
  check_padded(ctx, "to_padded", x, out);
  on_device(ctx, [&](auto device) { kernels::to_padded<T>(device, x, out); });
}

template <class T>
void from_padded(const Context& ctx, View<const T, 3> x, Jagged<T> out) {
  check_padded(ctx, "from_padded", out, x);
  on_device(ctx, [&](auto device) { kernels::from_padded<T>(device, x, out); });
}

#define TGR_INSTANTIATE(T)                                                                         \
  template void jagged_concat<T>(const Context&, Jagged<const T>, Jagged<const T>, Jagged<T>);     \
  template void jagged_split<T>(const Context&, Jagged<const T>, Jagged<T>, Jagged<T>);            \
  template void last_k_rows<T>(const Context&, Jagged<const T>, std::int64_t, Jagged<T>);          \
  template void last_k_rows_backward<T>(const Context&, Jagged<const T>, std::int64_t, Jagged<T>); \
  template void to_padded<T>(const Context&, Jagged<const T>, View<T, 3>);                         \
  template void from_padded<T>(const Context&, View<const T, 3>, Jagged<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
