#include <algorithm>
#include <cmath>

#include "turbogr/core/dtype.h"
#include "turbogr/ops/attention/target_attention_kernels.h"

namespace turbogr::ops::kernels {
namespace {

// Eight sums beside each other, which a compiler makes one vector of.
template <class T>
Accum<T> dot_product(const T* a, const T* b, std::int64_t count) {
  using A = Accum<T>;
  A sums[8] = {};
  std::int64_t c = 0;
  for (; c + 8 <= count; c += 8) {
    for (int i = 0; i < 8; ++i) sums[i] += convert<A>(a[c + i]) * convert<A>(b[c + i]);
  }
  for (; c < count; ++c) sums[0] += convert<A>(a[c]) * convert<A>(b[c]);
  A sum = 0;
  for (const A each : sums) sum += each;
  return sum;
}

template <class T>
void add_weighted(Accum<T> factor, const T* row, std::int64_t count, Accum<T>* sums) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] += factor * convert<Accum<T>>(row[c]);
}

template <class T>
void store_weighted(const Accum<T>* sums, Accum<T> factor, std::int64_t count, T* row) {
  for (std::int64_t c = 0; c < count; ++c) row[c] = convert<T>(factor * sums[c]);
}

constexpr std::int64_t kMostWidth = 256;  // of a head

// Rows of one head.
template <class T>
struct Head {
  Rows<const T> q, k, v;

  Head(Rows<const T> all_q, Rows<const T> all_k, Rows<const T> all_v, int heads, std::int64_t h)
      : q(all_q.columns(h * (all_q.cols / heads), all_q.cols / heads)),
        k(all_k.columns(h * (all_k.cols / heads), all_k.cols / heads)),
        v(all_v.columns(h * (all_v.cols / heads), all_v.cols / heads)) {}
};

template <class T>
Rows<T> of_head(Rows<T> all, int heads, std::int64_t h) {
  return all.columns(h * (all.cols / heads), all.cols / heads);
}

}  // namespace

template <class T>
void target_attention(Cpu cpu, const TargetSequences& sequences, Rows<const T> q, Rows<const T> k,
                      Rows<const T> v, const TargetAttentionOptions& options, Rows<T> out) {
  using A = Accum<T>;
  const std::int64_t batch = sequences.tokens.shape[0] - 1;
  const auto alpha = static_cast<A>(options.alpha);
  const auto scale = static_cast<A>(1 / options.norm_length);
  parallel_for(cpu.pool, batch * options.heads, [&](std::int64_t item, int) {
    const TargetSequence at = target_sequence(sequences, item / options.heads);
    const Head<T> head(q, k, v, options.heads, item % options.heads);
    const Rows<T> to = of_head(out, options.heads, item % options.heads);
    for (std::int64_t i = 0; i < at.targets; ++i) {
      A sums[kMostWidth] = {};
      const auto add = [&](std::int64_t token) {
        const A x = alpha * dot_product(head.q.row(at.target + i), head.k.row(token), head.q.cols);
        add_weighted(x / (1 + std::exp(-x)), head.v.row(token), head.v.cols, sums);
      };
      for (std::int64_t j = 0; j < at.before; ++j) add(at.token + j);
      add(at.token + at.before + i);
      store_weighted(sums, scale, to.cols, to.row(at.target + i));
    }
  });
}

template <class T>
void target_attention_backward(Cpu cpu, const TargetSequences& sequences, Rows<const T> q,
                               Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  using A = Accum<T>;
  const std::int64_t batch = sequences.tokens.shape[0] - 1;
  const auto alpha = static_cast<A>(options.alpha);
  const auto scale = static_cast<A>(1 / options.norm_length);
  // What weight A_ij is, but for the scale, and the gradient of q_i . k_j, likewise.
  struct Pair {
    A weight, slope;
  };
  parallel_for(cpu.pool, batch * options.heads, [&](std::int64_t item, int) {
    const TargetSequence at = target_sequence(sequences, item / options.heads);
    const std::int64_t h = item % options.heads;
    const Head<T> head(q, k, v, options.heads, h);
    const Rows<const T> given = of_head(dout, options.heads, h);
    const Rows<T> to_q = of_head(dq, options.heads, h), to_k = of_head(dk, options.heads, h),
                  to_v = of_head(dv, options.heads, h);
    const auto pair = [&](std::int64_t i, std::int64_t token) -> Pair {
      const A x = alpha * dot_product(head.q.row(at.target + i), head.k.row(token), head.q.cols);
      const A d = dot_product(given.row(at.target + i), head.v.row(token), head.v.cols);
      const A s = 1 / (1 + std::exp(-x));
      return {x * s, alpha * d * s * (1 + x * (1 - s))};
    };
    for (std::int64_t i = 0; i < at.targets; ++i) {
      A sums[kMostWidth] = {};
      const auto add = [&](std::int64_t token) {
        add_weighted(pair(i, token).slope, head.k.row(token), head.k.cols, sums);
      };
      for (std::int64_t j = 0; j < at.before; ++j) add(at.token + j);
      add(at.token + at.before + i);
      store_weighted(sums, scale, to_q.cols, to_q.row(at.target + i));
    }
    for (std::int64_t j = 0; j < at.before + at.targets; ++j) {
      A key_sums[kMostWidth] = {}, value_sums[kMostWidth] = {};
      const auto add = [&](std::int64_t i) {
        const Pair p = pair(i, at.token + j);
        add_weighted(p.slope, head.q.row(at.target + i), head.q.cols, key_sums);
        add_weighted(p.weight, given.row(at.target + i), given.cols, value_sums);
      };
      if (j < at.before) {
        for (std::int64_t i = 0; i < at.targets; ++i) add(i);
      } else {
        add(j - at.before);
      }
      store_weighted(key_sums, scale, to_k.cols, to_k.row(at.token + j));
      store_weighted(value_sums, scale, to_v.cols, to_v.row(at.token + j));
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void target_attention<T>(Cpu, const TargetSequences&, Rows<const T>, Rows<const T>, \
                                    Rows<const T>, const TargetAttentionOptions&, Rows<T>);    \
  template void target_attention_backward<T>(                                                  \
      Cpu, const TargetSequences&, Rows<const T>, Rows<const T>, Rows<const T>,                \
      const TargetAttentionOptions&, Rows<const T>, Rows<T>, Rows<T>, Rows<T>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
