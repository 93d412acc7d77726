// Softmax cross-entropy over the positive item and a set of negatives. Scores are made tile by tile
// and made again in backward: neither [N, R, D] nor, with shared negatives, [N, R] ever exists.
//
//   loss_i = -log(e^(l+) / (e^(l+) + sum over r of e^(l_r)))
//   l = u . e / temperature, minus the item's correction for a negative
//
// A negative that is the positive's item is masked. With `normalize`, u = x / max(|x|, eps) and the
// same for items; gradients go through it.
//
// Tokens may share their own negatives, factor k: in the ring of `order`, a token also competes
// with the negatives of the k - 1 tokens after it. Two readings:
//   logits      a partner's logits as they are, o_p . n_pj: no new product
//   embeddings  its negatives' rows, o_i . n_pj: new products, no new rows
// A partner's negative that is my positive is masked; one that is the partner's own positive has no
// logit to share, so it is masked too under `logits`. Gradients reach whatever made a logit.
//
//   sampled_softmax<bf16>(ctx, inputs, {.temperature = 0.05}, {loss, log_sum_exp});
//   sampled_softmax_backward<bf16>(ctx, inputs, {.temperature = 0.05}, log_sum_exp, dloss,
//                                  dquery, ditems);
//
// Negatives may be read from f16 rows while positives stay in full precision; the gradient is that
// of the rows as they were read.
//
// N tokens, R negatives, U distinct items (V in full_softmax), D width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/half_rows.h"

namespace turbogr::ops {

template <class T>
struct SampledSoftmaxInputs {
  Rows<const T> query;                   // [N, D]
  Rows<const T> items;                   // [U, D], each item once: equal items are equal rows
  View<const std::int32_t, 1> positive;  // [N], rows of items
  // One of the two: each token's own negatives, or one set for all. Rows of items, repeats allowed.
  View<const std::int32_t, 2> negatives;         // [N, R]
  View<const std::int32_t, 1> shared_negatives;  // [R]
  // [U], subtracted from an item's logit where it is a negative: log(V q). Empty: none.
  View<const Accum<T>, 1> correction;
  // [N], with options.sharing: the ring of tokens, each of them once.
  View<const std::int32_t, 1> order;
  // [U, D]: the rows negatives are read from, numbered like items. Then items need only hold the
  // positives, [P, D] with P up to U. Empty: they are read from items.
  HalfRows negative_items;
};

enum class NegativeSharing : std::uint8_t { kNone, kLogits, kEmbeddings };

struct SoftmaxOptions {
  double temperature = 0.05;
  bool normalize = true;
  double eps = 1e-6;
  NegativeSharing sharing = NegativeSharing::kNone;  // of tokens' own negatives
  std::int64_t sharing_factor = 1;                   // k; fewer tokens than that share among all
};

template <class T>
struct SoftmaxOutput {
  View<Accum<T>, 1> loss;         // [N]
  View<Accum<T>, 1> log_sum_exp;  // [N], saved for backward
};

template <class T>
void sampled_softmax(const Context& ctx, const SampledSoftmaxInputs<T>& inputs,
                     const SoftmaxOptions& options, const SoftmaxOutput<T>& output);

// dloss [N] weighs each token's loss. Overwrites dquery [N, D]; adds to ditems [U, D], each row's
// terms in an order that depends on the inputs alone.
template <class T>
void sampled_softmax_backward(const Context& ctx, const SampledSoftmaxInputs<T>& inputs,
                              const SoftmaxOptions& options, View<const Accum<T>, 1> log_sum_exp,
                              View<const Accum<T>, 1> dloss, Rows<T> dquery, Rows<Accum<T>> ditems);

// sampled_softmax and then sampled_softmax_backward, for callers that know dloss before the loss.
// On a GPU scores against up to 8192 shared negatives are then made once instead of twice, and the
// rows of tokens' own negatives read once. The same numbers up to rounding.
template <class T>
void sampled_softmax_with_gradients(const Context& ctx, const SampledSoftmaxInputs<T>& inputs,
                                    const SoftmaxOptions& options, View<const Accum<T>, 1> dloss,
                                    const SoftmaxOutput<T>& output, Rows<T> dquery,
                                    Rows<Accum<T>> ditems);

// The same with all V rows of a small catalogue as candidates.
//   query [N, D]    items [V, D]    positive [N]
template <class T>
void full_softmax(const Context& ctx, Rows<const T> query, Rows<const T> items,
                  View<const std::int32_t, 1> positive, const SoftmaxOptions& options,
                  const SoftmaxOutput<T>& output);
template <class T>
void full_softmax_backward(const Context& ctx, Rows<const T> query, Rows<const T> items,
                           View<const std::int32_t, 1> positive, const SoftmaxOptions& options,
                           View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                           Rows<T> dquery, Rows<Accum<T>> ditems);

// Enough for forward and backward of either: bounded in N and R but for a few words a token and
// an item; on a GPU also 24 bytes and a sort's scratch for each of up to 2^24 pairs of a token and
// its own negative, and D words a token where there are more than 8192 items. `own_negatives` is R
// where tokens have their own, 0 where the set is shared or full.
std::size_t softmax_workspace_bytes(const Context& ctx, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives,
                                    const SoftmaxOptions& options = {});

}  // namespace turbogr::ops
