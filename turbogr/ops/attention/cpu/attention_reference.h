// The specification of both attentions, written as the formulas are: double runs it as it is, and
// tests run it in other formats to learn what error a plain implementation makes. Sums are kept in
// Accum<T>.
#pragma once

#include <cmath>
#include <cstdint>

#include "turbogr/ops/attention/attention_kernels.h"
#include "turbogr/ops/attention/time_bucket.h"

namespace turbogr::ops {

// One pair that is visible: token rows and the table entries it uses (-1: no such table).
struct AttentionPair {
  std::int64_t query;
  std::int64_t key;
  std::int64_t position;
  std::int64_t time;
};

// Calls body for every visible pair, sequence by sequence, queries in order, keys in order.
template <class T, class Body>
void for_each_pair(const AttentionProblem<T>& p, Body&& body) {
  const std::int64_t max_length = (p.bias.position.shape[0] + 1) / 2;
  for (std::int64_t b = 0; b < p.q.batch(); ++b) {
    const std::int64_t begin = p.q.offsets(b);
    const SequenceMask mask = sequence_mask(p.mask, p.q.offsets, b);
    for (std::int64_t i = 0; i < mask.length; ++i) {
      for (std::int64_t j = 0; j < mask.length; ++j) {
        if (!mask.sees(i, j)) continue;
        body(AttentionPair{
            .query = begin + i,
            .key = begin + j,
            .position =
                p.bias.position.empty() ? -1 : max_length - 1 + mask.place(j) - mask.place(i),
            .time = p.bias.time.empty()
                        ? -1
                        : time_bucket(p.bias.query_times(begin + i), p.bias.key_times(begin + j))});
      }
    }
  }
}

template <class A>
A reference_sigmoid(A x) {
  return A(1) / (A(1) + std::exp(-x));
}

// a . b over one head's columns.
template <class T>
Accum<T> reference_dot(const T* a, const T* b, std::int64_t width) {
  Accum<T> sum = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += convert<Accum<T>>(a[c]) * convert<Accum<T>>(b[c]);
  return sum;
}

// target += scale * row over one head's columns.
template <class A, class T>
void reference_add(A* target, A scale, const T* row, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) target[c] += scale * convert<A>(row[c]);
}

// out [N, H * dv], of Accum<T>, zero before.
template <class T>
void hstu_attention_reference(const AttentionProblem<T>& p, Rows<Accum<T>> out) {
  using A = Accum<T>;
  const std::int64_t dq = p.q.width() / p.heads;
  const std::int64_t dv = p.v.cols / p.heads;
  for_each_pair(p, [&](const AttentionPair& pair) {
    A bias = 0;
    if (pair.position >= 0) bias += p.bias.position(pair.position);
    if (pair.time >= 0) bias += p.bias.time(pair.time);
    for (int h = 0; h < p.heads; ++h) {
      const A dot =
          reference_dot(p.q.values.row(pair.query) + h * dq, p.k.row(pair.key) + h * dq, dq);
      const A score = A(p.alpha) * dot + bias;
      const A weight = score * reference_sigmoid(score) / A(p.norm_length);
      reference_add(out.row(pair.query) + h * dv, weight, p.v.row(pair.key) + h * dv, dv);
    }
  });
}

// dq, dk, dv of Accum<T>, zero before; dposition and dtime are added to, empty ones skipped.
template <class T>
void hstu_attention_backward_reference(const AttentionProblem<T>& p, Rows<const T> dout,
                                       Rows<Accum<T>> dq_out, Rows<Accum<T>> dk_out,
                                       Rows<Accum<T>> dv_out,
                                       const AttentionBiasGradient<T>& dbias) {
  using A = Accum<T>;
  const std::int64_t dq = p.q.width() / p.heads;
  const std::int64_t dv = p.v.cols / p.heads;
  for_each_pair(p, [&](const AttentionPair& pair) {
    A bias = 0;
    if (pair.position >= 0) bias += p.bias.position(pair.position);
    if (pair.time >= 0) bias += p.bias.time(pair.time);
    for (int h = 0; h < p.heads; ++h) {
      const T* q = p.q.values.row(pair.query) + h * dq;
      const T* k = p.k.row(pair.key) + h * dq;
      const T* v = p.v.row(pair.key) + h * dv;
      const T* dy = dout.row(pair.query) + h * dv;
      const A score = A(p.alpha) * reference_dot(q, k, dq) + bias;
      const A s = reference_sigmoid(score);
      const A weight = score * s / A(p.norm_length);
      const A dscore =
          reference_dot(dy, v, dv) / A(p.norm_length) * s * (A(1) + score * (A(1) - s));
      reference_add(dv_out.row(pair.key) + h * dv, weight, dy, dv);
      reference_add(dk_out.row(pair.key) + h * dq, A(p.alpha) * dscore, q, dq);
      reference_add(dq_out.row(pair.query) + h * dq, A(p.alpha) * dscore, k, dq);
      if (pair.position >= 0 && !dbias.position.empty()) dbias.position(pair.position) += dscore;
      if (pair.time >= 0 && !dbias.time.empty()) dbias.time(pair.time) += dscore;
    }
  });
}

// out [N, H * 3 * dv], of Accum<T>, zero before.
template <class T>
void fuxi_attention_reference(const AttentionProblem<T>& p, Rows<Accum<T>> out) {
  using A = Accum<T>;
  const std::int64_t dq = p.q.width() / p.heads;
  const std::int64_t dv = p.v.cols / p.heads;
  for_each_pair(p, [&](const AttentionPair& pair) {
    for (int h = 0; h < p.heads; ++h) {
      A* y = out.row(pair.query) + h * 3 * dv;
      const T* v = p.v.row(pair.key) + h * dv;
      const A score = A(p.alpha) * reference_dot(p.q.values.row(pair.query) + h * dq,
                                                 p.k.row(pair.key) + h * dq, dq);
      const A latent = score * reference_sigmoid(score) / A(p.norm_length);
      if (pair.position >= 0) reference_add(y, p.bias.position(pair.position), v, dv);
      if (pair.time >= 0) reference_add(y + dv, p.bias.time(pair.time), v, dv);
      reference_add(y + 2 * dv, latent, v, dv);
    }
  });
}

template <class T>
void fuxi_attention_backward_reference(const AttentionProblem<T>& p, Rows<const T> dout,
                                       Rows<Accum<T>> dq_out, Rows<Accum<T>> dk_out,
                                       Rows<Accum<T>> dv_out,
                                       const AttentionBiasGradient<T>& dmaps) {
  using A = Accum<T>;
  const std::int64_t dq = p.q.width() / p.heads;
  const std::int64_t dv = p.v.cols / p.heads;
  for_each_pair(p, [&](const AttentionPair& pair) {
    for (int h = 0; h < p.heads; ++h) {
      const T* q = p.q.values.row(pair.query) + h * dq;
      const T* k = p.k.row(pair.key) + h * dq;
      const T* v = p.v.row(pair.key) + h * dv;
      const T* dy = dout.row(pair.query) + h * 3 * dv;
      A* dvalue = dv_out.row(pair.key) + h * dv;
      if (pair.position >= 0) {
        reference_add(dvalue, p.bias.position(pair.position), dy, dv);
        if (!dmaps.position.empty()) dmaps.position(pair.position) += reference_dot(dy, v, dv);
      }
      if (pair.time >= 0) {
        reference_add(dvalue, p.bias.time(pair.time), dy + dv, dv);
        if (!dmaps.time.empty()) dmaps.time(pair.time) += reference_dot(dy + dv, v, dv);
      }
      const A score = A(p.alpha) * reference_dot(q, k, dq);
      const A s = reference_sigmoid(score);
      const A latent = score * s / A(p.norm_length);
      const A dscore =
          reference_dot(dy + 2 * dv, v, dv) / A(p.norm_length) * s * (A(1) + score * (A(1) - s));
      reference_add(dvalue, latent, dy + 2 * dv, dv);
      reference_add(dk_out.row(pair.key) + h * dq, A(p.alpha) * dscore, q, dq);
      reference_add(dq_out.row(pair.query) + h * dq, A(p.alpha) * dscore, k, dq);
    }
  });
}

}  // namespace turbogr::ops
