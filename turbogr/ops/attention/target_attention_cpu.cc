#include <algorithm>
#include <cmath>

#include "turbogr/core/dtype.h"
#include "turbogr/ops/attention/target_attention_kernels.h"
#include "turbogr/ops/attention/target_attention_simd.h"

namespace turbogr::ops::kernels {
namespace {

template <class T>
Rows<T> of_head(Rows<T> all, int heads, std::int64_t h) {
  return all.columns(h * (all.cols / heads), all.cols / heads);
}

// A head of a sequence as the vector code takes it.
template <class T>
class Heads {
 public:
  Heads(const TargetSequences& sequences, Rows<const T> q, Rows<const T> k, Rows<const T> v,
        const TargetAttentionOptions& options)
      : sequences_(sequences), q_(q), k_(k), v_(v), options_(options) {}

  // Calls body(head, sequence, from, to); from and to give the head's part of other matrices.
  template <class Body>
  void over_items(Cpu cpu, Body&& body) const {
    const std::int64_t batch = sequences_.tokens.shape[0] - 1;
    parallel_for(cpu.pool, batch * options_.heads, [&](std::int64_t item, int) {
      const TargetSequence at = target_sequence(sequences_, item / options_.heads);
      const std::int64_t h = item % options_.heads;
      const auto from = [&](Rows<const T> all, std::int64_t row) {
        return typename TargetHead<T>::In{of_head(all, options_.heads, h).row(row), all.stride};
      };
      const auto to = [&](Rows<T> all, std::int64_t row) {
        return typename TargetHead<T>::Out{of_head(all, options_.heads, h).row(row), all.stride};
      };
      TargetHead<T> head = {};
      head.before = at.before;
      head.targets = at.targets;
      head.qk_width = q_.cols / options_.heads;
      head.v_width = v_.cols / options_.heads;
      head.alpha = static_cast<float>(options_.alpha);
      head.scale = static_cast<float>(1 / options_.norm_length);
      head.q = from(q_, at.target);
      head.k = from(k_, at.token);
      head.v = from(v_, at.token);
      body(head, at, from, to);
    });
  }

 private:
  TargetSequences sequences_;
  Rows<const T> q_, k_, v_;
  TargetAttentionOptions options_;
};

}  // namespace

template <class T>
void target_attention(Cpu cpu, const TargetSequences& sequences, Rows<const T> q, Rows<const T> k,
                      Rows<const T> v, const TargetAttentionOptions& options, Rows<T> out) {
  const auto forward = target_attention_table(cpu.simd).forward<T>();
  Heads<T>(sequences, q, k, v, options)
      .over_items(cpu, [&](TargetHead<T>& head, const TargetSequence& at, auto&&, auto&& to) {
        head.out = to(out, at.target);
        forward(head);
      });
}

template <class T>
void target_attention_backward(Cpu cpu, const TargetSequences& sequences, Rows<const T> q,
                               Rows<const T> k, Rows<const T> v,
                               const TargetAttentionOptions& options, Rows<const T> dout,
                               Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  const auto backward = target_attention_table(cpu.simd).backward<T>();
  Heads<T>(sequences, q, k, v, options)
      .over_items(cpu, [&](TargetHead<T>& head, const TargetSequence& at, auto&& from, auto&& to) {
        head.dout = from(dout, at.target);
        head.dq = to(dq, at.target);
        head.dk = to(dk, at.token);
        head.dv = to(dv, at.token);
        backward(head);
      });
}

// The specification.
namespace {

double dot_product(const double* a, const double* b, std::int64_t count) {
  double total = 0;
  for (std::int64_t c = 0; c < count; ++c) total += a[c] * b[c];
  return total;
}

void add_weighted(double factor, const double* row, std::int64_t count, double* sums) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] += factor * row[c];
}

}  // namespace

template <>
void target_attention<double>(Cpu cpu, const TargetSequences& sequences, Rows<const double> q,
                              Rows<const double> k, Rows<const double> v,
                              const TargetAttentionOptions& options, Rows<double> out) {
  const std::int64_t batch = sequences.tokens.shape[0] - 1;
  parallel_for(cpu.pool, batch * options.heads, [&](std::int64_t item, int) {
    const TargetSequence at = target_sequence(sequences, item / options.heads);
    const std::int64_t h = item % options.heads;
    const auto head_q = of_head(q, options.heads, h), head_k = of_head(k, options.heads, h),
               head_v = of_head(v, options.heads, h);
    const Rows<double> to = of_head(out, options.heads, h);
    for (std::int64_t i = 0; i < at.targets; ++i) {
      double* sums = to.row(at.target + i);
      std::fill_n(sums, to.cols, 0.0);
      const auto add = [&](std::int64_t token) {
        const double x =
            options.alpha * dot_product(head_q.row(at.target + i), head_k.row(token), head_q.cols);
        add_weighted(x / (1 + std::exp(-x)) / options.norm_length, head_v.row(token), head_v.cols,
                     sums);
      };
      for (std::int64_t j = 0; j < at.before; ++j) add(at.token + j);
      add(at.token + at.before + i);
    }
  });
}

template <>
void target_attention_backward<double>(Cpu cpu, const TargetSequences& sequences,
                                       Rows<const double> q, Rows<const double> k,
                                       Rows<const double> v, const TargetAttentionOptions& options,
                                       Rows<const double> dout, Rows<double> dq, Rows<double> dk,
                                       Rows<double> dv) {
  const std::int64_t batch = sequences.tokens.shape[0] - 1;
  parallel_for(cpu.pool, batch * options.heads, [&](std::int64_t item, int) {
    const TargetSequence at = target_sequence(sequences, item / options.heads);
    const std::int64_t h = item % options.heads;
    const auto head_q = of_head(q, options.heads, h), head_k = of_head(k, options.heads, h),
               head_v = of_head(v, options.heads, h), given = of_head(dout, options.heads, h);
    const Rows<double> to_q = of_head(dq, options.heads, h), to_k = of_head(dk, options.heads, h),
                       to_v = of_head(dv, options.heads, h);
    for (std::int64_t i = 0; i < at.targets; ++i) {
      std::fill_n(to_q.row(at.target + i), to_q.cols, 0.0);
    }
    for (std::int64_t j = 0; j < at.before + at.targets; ++j) {
      std::fill_n(to_k.row(at.token + j), to_k.cols, 0.0);
      std::fill_n(to_v.row(at.token + j), to_v.cols, 0.0);
    }
    for (std::int64_t i = 0; i < at.targets; ++i) {
      const std::int64_t target = at.target + i;
      const auto add = [&](std::int64_t token) {
        const double x =
            options.alpha * dot_product(head_q.row(target), head_k.row(token), head_q.cols);
        const double d = dot_product(given.row(target), head_v.row(token), head_v.cols);
        const double s = 1 / (1 + std::exp(-x));
        const double weight = x * s / options.norm_length;
        const double slope = options.alpha * d * s * (1 + x * (1 - s)) / options.norm_length;
        add_weighted(slope, head_k.row(token), head_k.cols, to_q.row(target));
        add_weighted(slope, head_q.row(target), head_q.cols, to_k.row(token));
        add_weighted(weight, given.row(target), given.cols, to_v.row(token));
      };
      for (std::int64_t j = 0; j < at.before; ++j) add(at.token + j);
      add(at.token + at.before + i);
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void target_attention<T>(Cpu, const TargetSequences&, Rows<const T>, Rows<const T>, \
                                    Rows<const T>, const TargetAttentionOptions&, Rows<T>);    \
  template void target_attention_backward<T>(                                                  \
      Cpu, const TargetSequences&, Rows<const T>, Rows<const T>, Rows<const T>,                \
      const TargetAttentionOptions&, Rows<const T>, Rows<T>, Rows<T>, Rows<T>);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
