// The gradients of tokens with negatives of their own (sampled_softmax_own_cuda.cuh): in a pass
// that reads the negatives' rows again, or in the one that makes the losses.
#include <bit>

#include "turbogr/ops/softmax/sampled_softmax_own_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;

std::int64_t round_tokens(std::int64_t tokens, std::int64_t num_negatives) {
  return std::clamp(kMaxOwnPairs / (num_negatives + 1), std::int64_t{1},
                    std::max(tokens, std::int64_t{1}));
}

// Where the terms of a token's items go.
template <class T, class Negative>
struct TokenTerms {
  using A = Accum<T>;
  const OwnArgs<T, Negative>& args;
  std::int64_t local, products, pairs;

  __device__ TokenTerms(const OwnArgs<T, Negative>& args_in, std::int64_t local_in)
      : args(args_in),
        local(local_in),
        products(args.owners * args.num_negatives),
        pairs(local * (products + 1)) {}

  __device__ std::uint32_t slot(std::int64_t r) const {
    return static_cast<std::uint32_t>((local << args.shift) + r);
  }
  __device__ void keep(std::int64_t r, std::int32_t item, A weight) const {
    args.keys[pairs + r] = static_cast<std::uint32_t>(item);
    args.index[pairs + r] = slot(r);
    args.weight[slot(r)] = weight;
  }
  __device__ void keep_positive(std::int32_t item, A weight) const {
    keep(products, item, weight);
    if (args.positive_keys == nullptr) return;
    args.positive_keys[local] = static_cast<std::uint32_t>(item);
    args.positive_index[local] = slot(products);
    // Past the last row: no term among the negatives'.
    args.keys[pairs + products] = static_cast<std::uint32_t>(args.negative_items.rows);
  }
};

// dquery of a token from v, the sum of its weighted rows: v - u (u . v); query is u / temperature.
template <class T, int kChunks, bool kVector>
__device__ void store_query_gradient(const WarpToken<T, kChunks, kVector>& query,
                                     const CudaNorms<Accum<T>>& norms, Accum<T> inverse,
                                     Accum<T> scale, WarpSum<Accum<T>, kChunks>& sum, T* to) {
  using A = Accum<T>;
  A along = 0;
  if (norms.projects(inverse)) {
#pragma unroll
    for (int k = 0; k < kChunks; ++k) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) along += query.query[k][i] * sum.v[k][i];
    }
    along = cuda::warp_sum(along) / (scale * scale);
  }
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    const std::int64_t c = (std::int64_t{k} * 32 + threadIdx.x) * kColumns;
    if (c >= query.cols) continue;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum.v[k][i] -= along * query.query[k][i];
    cuda::store8<kVector>(to + c, query.cols - c, sum.v[k]);
  }
}

// Needs the log-sum-exps.
template <class T, class Negative, int kChunks, bool kVector>
__global__ void own_backward_kernel(OwnArgs<T, Negative> args) {
  using A = Accum<T>;
  const std::int64_t place = args.first + std::int64_t{blockIdx.x} * kOwnWarps + threadIdx.y;
  if (place >= args.last) return;
  const std::int64_t token = args.token_at(place);
  const A inverse = args.norms.query[token];
  const A factor = inverse * args.scale;
  const std::int64_t cols = args.query.cols;
  const WarpToken<T, kChunks, kVector> query(args.query.row(token), cols, factor);
  const A log_sum_exp = args.log_sum_exp[token];
  const A dloss = args.dloss[token];
  const TokenTerms<T, Negative> terms(args, place - args.first);
  WarpSum<A, kChunks> sum;
  const std::int32_t positive = args.positive[token];
  {
    WarpRow<A, T, kChunks, kVector> row;
    row.load(args.items.row(positive), cols);
    const A item_inverse = args.norms.items[positive];
    const A logit = query.dot(row) * item_inverse;
    const A weight = dloss * expm1(logit - log_sum_exp) * item_inverse * factor;
    sum.add(weight, row, cols);
    if (threadIdx.x == 0) terms.keep_positive(positive, weight);
  }
  // d loss / d logit of an item that is not the positive. A logit that several tokens use has a
  // lane for each of them.
  const auto gradient = [&](std::int32_t item, A logit) {
    if (args.users == 1) return dloss * exponential(logit - log_sum_exp);
    A share = 0;
    for (std::int64_t m = threadIdx.x; m < args.users; m += 32) {
      const std::int64_t user = args.token_at(place - m);
      if (args.positive[user] == item) continue;
      share += args.dloss[user] * exponential(logit - args.log_sum_exp[user]);
    }
    return cuda::warp_sum(share);
  };
  for (std::int64_t m = 0; m < args.owners; ++m) {
    const std::int64_t owner = args.token_at(place + m);
    for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
      A mine = 0;
      std::int32_t mine_item = 0;
      over_negatives<kChunks, kVector>(
          args, owner, begin, [&](int j, std::int32_t item, const auto& loaded) {
            const A reading = args.norms.reading[item];
            A logit = query.dot(loaded) * reading;
            if (args.correction != nullptr) logit -= args.correction[item];
            const A g = item == positive ? A(0) : gradient(item, logit) * factor;
            sum.add(g * reading, loaded, cols);
            if (static_cast<int>(threadIdx.x) == j) {
              mine = g * args.norms.negatives[item];
              mine_item = item;
            }
          });
      const std::int64_t r = begin + threadIdx.x;
      if (r < args.num_negatives) terms.keep(m * args.num_negatives + r, mine_item, mine);
    }
  }
  store_query_gradient(query, args.norms, inverse, args.scale, sum, args.dquery.row(token));
}

// Losses and gradients from one reading of the rows: the sum of weighted rows is kept relative to
// the largest logit so far, as the sum of exponentials is. Every lane knows every logit.
template <class T, class Negative, int kChunks, bool kVector>
__global__ void own_single_pass_kernel(OwnArgs<T, Negative> args) {
  using A = Accum<T>;
  const std::int64_t place = args.first + std::int64_t{blockIdx.x} * kOwnWarps + threadIdx.y;
  if (place >= args.last) return;
  const std::int64_t token = args.token_at(place);
  const A inverse = args.norms.query[token];
  const A factor = inverse * args.scale;
  const std::int64_t cols = args.query.cols;
  const WarpToken<T, kChunks, kVector> query(args.query.row(token), cols, factor);
  const TokenTerms<T, Negative> terms(args, place - args.first);
  const std::int32_t positive = args.positive[token];
  A first = 0;
  {
    WarpRow<A, T, kChunks, kVector> row;
    row.load(args.items.row(positive), cols);
    first = query.dot(row) * args.norms.items[positive];
  }
  A largest = first;
  A total = 1;
  WarpSum<A, kChunks> sum;
  for (std::int64_t m = 0; m < args.owners; ++m) {
    const std::int64_t owner = args.token_at(place + m);
    for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
      A mine = -std::numeric_limits<A>::infinity();
      std::int32_t mine_item = 0;
      over_negatives<kChunks, kVector>(args, owner, begin,
                                       [&](int j, std::int32_t item, const auto& loaded) {
                                         const A reading = args.norms.reading[item];
                                         A logit = query.dot(loaded) * reading;
                                         if (args.correction != nullptr)
                                           logit -= args.correction[item];
                                         const bool counts = item != positive;
                                         if (static_cast<int>(threadIdx.x) == j) {
                                           if (counts) mine = logit;
                                           mine_item = item;
                                         }
                                         if (!counts) return;
                                         if (logit > largest) {
                                           const A fall = exponential(largest - logit);
                                           total *= fall;
                                           sum.scale(fall);
                                           largest = logit;
                                         }
                                         const A power = exponential(logit - largest);
                                         total += power;
                                         sum.add(power * reading, loaded, cols);
                                       });
      const std::int64_t r = begin + threadIdx.x;
      if (r < args.num_negatives) terms.keep(m * args.num_negatives + r, mine_item, mine);
    }
  }
  const A log_sum = log(total);
  const A log_sum_exp = largest + log_sum;
  const A dloss = args.dloss[token];
  if (threadIdx.x == 0) {
    args.log_sum_exp[token] = log_sum_exp;
    args.loss[token] = largest - first + log_sum;
  }
  // The logits kept become weights; another lane may have kept them.
  __syncwarp();
  for (std::int64_t r = threadIdx.x; r < terms.products; r += 32) {
    A& weight = args.weight[terms.slot(r)];
    weight = dloss * exponential(weight - log_sum_exp) * factor *
             args.norms.negatives[args.keys[terms.pairs + r]];
  }
  sum.scale(dloss * factor / total);
  WarpRow<A, T, kChunks, kVector> row;
  row.load(args.items.row(positive), cols);
  const A weight = dloss * expm1(first - log_sum_exp) * args.norms.items[positive] * factor;
  sum.add(weight, row, cols);
  if (threadIdx.x == 0) terms.keep_positive(positive, weight);
  store_query_gradient(query, args.norms, inverse, args.scale, sum, args.dquery.row(token));
}

// The same for rows of up to 64 columns. Eight lanes hold a row, so that a warp reads four
// negatives at a time; each group of lanes adds up its own, relative to the largest it has met, and
// the groups' sums are joined at the end.
constexpr int kLanes = 8, kGroups = 32 / kLanes;
constexpr std::int64_t kNarrow = kLanes * kColumns;

template <class A>
__device__ A group_sum(A value) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, lane);
  }
  return value;
}

template <class A>
struct NarrowSum {
  A largest, total;
  Eight<A> v;

  __device__ void rescale(A higher) {
    const A fall = exponential(largest - higher);
    largest = higher;
    total *= fall;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) v[i] *= fall;
  }
  // What the warp's groups have, in every lane: the same bits in each group.
  __device__ void join() {
#pragma unroll
    for (int lane = kLanes; lane < 32; lane *= 2) {
      rescale(max(largest, __shfl_xor_sync(0xffffffffu, largest, lane)));
      total += __shfl_xor_sync(0xffffffffu, total, lane);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) v[i] += __shfl_xor_sync(0xffffffffu, v[i], lane);
    }
  }
};

template <class T, class Negative, bool kVector>
__global__ void own_narrow_kernel(OwnArgs<T, Negative> args) {
  using A = Accum<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  const std::int64_t place = args.first + std::int64_t{blockIdx.x} * kOwnWarps + threadIdx.y;
  if (place >= args.last) return;
  const std::int64_t token = args.token_at(place);
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t cols = args.query.cols;
  const std::int64_t c = static_cast<int>(threadIdx.x) % kLanes * std::int64_t{kColumns};
  const std::int64_t left = cols - c;
  const A inverse = args.norms.query[token];
  const A factor = inverse * args.scale;
  const auto load = [&](const auto* row) {
    return left > 0 ? cuda::load_row8<kVector, A>(row + c, left) : Eight<A>{};
  };
  Eight<A> query = load(args.query.row(token));
#pragma unroll
  for (int i = 0; i < kColumns; ++i) query[i] *= factor;
  const auto dot = [&](const Eight<A>& row) {
    A sum = 0;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum += query[i] * row[i];
    return group_sum(sum);
  };
  const TokenTerms<T, Negative> terms(args, place - args.first);
  const std::int32_t positive = args.positive[token];
  const A first = dot(load(args.items.row(positive))) * args.norms.items[positive];
  NarrowSum<A> sum = {first, group == 0 ? A(1) : A(0), {}};
  for (std::int64_t m = 0; m < args.owners; ++m) {
    const std::int64_t owner = args.token_at(place + m);
    const std::int32_t* negatives = args.negatives + owner * args.num_negatives;
    for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
      // Each lane has one of 32 negatives, whose logit comes to it from the group that makes it.
      const auto count = static_cast<int>(min(args.num_negatives - begin, std::int64_t{32}));
      std::int32_t own = static_cast<int>(threadIdx.x) < count ? negatives[begin + threadIdx.x] : 0;
      if (own < 0 || own >= args.negative_items.rows) own = 0;
      A mine = kLowest;
      for (int j = 0; j < count; j += kGroups * kOwnAhead) {
        Eight<A> rows[kOwnAhead];
        A reading[kOwnAhead], logits[kOwnAhead];
        std::int32_t items[kOwnAhead];
#pragma unroll
        for (int a = 0; a < kOwnAhead; ++a) {
          items[a] = __shfl_sync(0xffffffffu, own, j + a * kGroups + group);
          rows[a] = load(args.negative_items.row(items[a]));
          reading[a] = args.norms.reading[items[a]];
        }
        A higher = sum.largest;
#pragma unroll
        for (int a = 0; a < kOwnAhead; ++a) {
          logits[a] = dot(rows[a]) * reading[a];
          if (args.correction != nullptr) logits[a] -= args.correction[items[a]];
          if (j + a * kGroups + group >= count || items[a] == positive) logits[a] = kLowest;
          higher = max(higher, logits[a]);
        }
        sum.rescale(higher);
#pragma unroll
        for (int a = 0; a < kOwnAhead; ++a) {
          const A power = exponential(logits[a] - higher);
          sum.total += power;
#pragma unroll
          for (int i = 0; i < kColumns; ++i) sum.v[i] += power * reading[a] * rows[a][i];
          const A its = __shfl_sync(0xffffffffu, logits[a], threadIdx.x % kGroups * kLanes);
          if (static_cast<int>(threadIdx.x) / kGroups == j / kGroups + a) mine = its;
        }
      }
      const std::int64_t r = begin + threadIdx.x;
      if (r < args.num_negatives) terms.keep(m * args.num_negatives + r, own, mine);
    }
  }
  sum.join();
  const A log_sum = log(sum.total);
  const A log_sum_exp = sum.largest + log_sum;
  const A dloss = args.dloss[token];
  if (threadIdx.x == 0) {
    args.log_sum_exp[token] = log_sum_exp;
    args.loss[token] = sum.largest - first + log_sum;
  }
  // The logits kept become weights; another lane may have kept them.
  __syncwarp();
  for (std::int64_t r = threadIdx.x; r < terms.products; r += 32) {
    A& weight = args.weight[terms.slot(r)];
    weight = dloss * exponential(weight - log_sum_exp) * factor *
             args.norms.negatives[args.keys[terms.pairs + r]];
  }
  const A share = dloss * factor / sum.total;
  const A weight = dloss * expm1(first - log_sum_exp) * args.norms.items[positive] * factor;
  const Eight<A> row = load(args.items.row(positive));
  A along = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    sum.v[i] = sum.v[i] * share + weight * row[i];
    along += query[i] * sum.v[i];
  }
  along = args.norms.projects(inverse) ? group_sum(along) / (args.scale * args.scale) : A(0);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum.v[i] -= along * query[i];
  if (threadIdx.x == 0) terms.keep_positive(positive, weight);
  if (group == 0 && left > 0) cuda::store8<kVector>(args.dquery.row(token) + c, left, sum.v);
}

// Runs `launch(args, count)` over rounds of tokens and adds up each round's terms of item
// gradients.
template <class T, class Negative, class Launch>
void over_rounds(Cuda cuda, const SoftmaxProblem<T>& problem, WorkspaceScope& scope,
                 OwnArgs<T, Negative> args, Rows<Accum<T>> ditems, Launch&& launch) {
  constexpr bool kHalf = std::is_same_v<Negative, f16>;
  const std::int64_t products = args.owners * args.num_negatives;
  const std::int64_t a_token = products + 1;
  const std::int64_t room = round_tokens(problem.tokens(), products);
  args.keys = scope.take<std::uint32_t>(room * a_token).data;
  args.index = scope.take<std::uint32_t>(room * a_token).data;
  if (kHalf) {
    args.positive_keys = scope.take<std::uint32_t>(room).data;
    args.positive_index = scope.take<std::uint32_t>(room).data;
  }
  args.shift = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(products)));
  args.weight = scope.take<Accum<T>>(room << args.shift).data;
  for (args.first = 0; args.first < problem.tokens(); args.first += room) {
    args.last = std::min(args.first + room, problem.tokens());
    const std::int64_t count = args.last - args.first;
    launch(args, count);
    // In a ring the tokens of a round lie anywhere.
    const bool ring = args.order != nullptr;
    ItemTerms<T> terms = {};
    terms.weight = args.weight;
    terms.shift = args.shift;
    terms.query = {args.query.row(ring ? 0 : args.first), count, args.query.cols,
                   args.query.stride};
    terms.order = ring ? args.order + args.first : nullptr;
    terms.keys = args.keys;
    terms.index = args.index;
    terms.count = count * a_token;
    terms.of_negatives = kHalf;
    add_item_terms<T>(cuda, problem, args.norms, terms, ditems);
    if (!kHalf) continue;
    terms.keys = args.positive_keys;
    terms.index = args.positive_index;
    terms.count = count;
    terms.of_negatives = false;
    add_item_terms<T>(cuda, problem, args.norms, terms, ditems);
  }
}

}  // namespace

template <class T>
void softmax_own_backward(Cuda cuda, const SoftmaxProblem<T>& problem,
                          View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                          Rows<T> dquery, Rows<Accum<T>> ditems) {
  choose_negative(problem, [&](auto negative) {
    using Negative = decltype(negative);
    WorkspaceScope scope(cuda.workspace);
    auto args = own_args<T, Negative>(problem, take_norms(cuda, scope, problem));
    args.log_sum_exp = const_cast<Accum<T>*>(log_sum_exp.data);  // the kernel only reads it
    args.dloss = dloss.data;
    args.dquery = dquery;
    const bool vectors = args.vectorable() && cuda::vectorable(dquery);
    over_rounds(cuda, problem, scope, args, ditems, [&](const auto& round, std::int64_t count) {
      cuda::choose_vector<T>(vectors, [&](auto vector) {
        choose_chunks<vector.value>(problem.width(), [&](auto chunks) {
          own_backward_kernel<T, Negative, chunks.value, vector.value>
              <<<own_blocks(count), dim3(32, kOwnWarps), 0, cuda::stream_of(cuda.stream)>>>(round);
        });
      });
    });
    cuda::check_launch("sampled_softmax_backward");
  });
}

template <class T>
void softmax_own_single_pass(Cuda cuda, const SoftmaxProblem<T>& problem,
                             View<const Accum<T>, 1> dloss, const SoftmaxOutput<T>& output,
                             Rows<T> dquery, Rows<Accum<T>> ditems) {
  choose_negative(problem, [&](auto negative) {
    using Negative = decltype(negative);
    WorkspaceScope scope(cuda.workspace);
    auto args = own_args<T, Negative>(problem, take_norms(cuda, scope, problem));
    args.loss = output.loss.data;
    args.log_sum_exp = output.log_sum_exp.data;
    args.dloss = dloss.data;
    args.dquery = dquery;
    const bool vectors = args.vectorable() && cuda::vectorable(dquery);
    over_rounds(cuda, problem, scope, args, ditems, [&](const auto& round, std::int64_t count) {
      cuda::choose_vector<T>(vectors, [&](auto vector) {
        if (problem.width() <= kNarrow) {
          own_narrow_kernel<T, Negative, vector.value>
              <<<own_blocks(count), dim3(32, kOwnWarps), 0, cuda::stream_of(cuda.stream)>>>(round);
          return;
        }
        choose_chunks<vector.value>(problem.width(), [&](auto chunks) {
          own_single_pass_kernel<T, Negative, chunks.value, vector.value>
              <<<own_blocks(count), dim3(32, kOwnWarps), 0, cuda::stream_of(cuda.stream)>>>(round);
        });
      });
    });
    cuda::check_launch("sampled_softmax_with_gradients");
  });
}

std::size_t cuda_own_workspace_bytes(std::int64_t tokens, std::int64_t width,
                                     std::int64_t num_negatives, const SoftmaxOptions& options) {
  const std::int64_t sharers =
      std::clamp(options.sharing_factor, std::int64_t{1}, std::max(tokens, std::int64_t{1}));
  const std::int64_t products =
      (options.sharing == NegativeSharing::kEmbeddings ? sharers : 1) * num_negatives;
  // Fewer tokens than share have fewer products each, and more of them in a round: this holds any.
  const std::int64_t most = std::max<std::int64_t>(tokens, 1);
  const std::int64_t pairs = std::min(std::max(kMaxOwnPairs, products + 1), most * (products + 1));
  const std::int64_t room = std::min(most, kMaxOwnPairs);
  // A token's weights take the next power of two.
  const std::size_t backward =
      2 * workspace_bytes_of<std::uint32_t>(pairs) + 2 * workspace_bytes_of<std::uint32_t>(room) +
      workspace_bytes_of<double>(2 * pairs) + item_terms_workspace_bytes(pairs, width);
  if (options.sharing != NegativeSharing::kLogits) return backward;
  return std::max(backward, cuda_shared_logits_workspace_bytes(tokens, num_negatives, sharers));
}

#define TGR_INSTANTIATE(T)                                                                       \
  template void softmax_own_backward<T>(Cuda, const SoftmaxProblem<T>&, View<const Accum<T>, 1>, \
                                        View<const Accum<T>, 1>, Rows<T>, Rows<Accum<T>>);       \
  template void softmax_own_single_pass<T>(Cuda, const SoftmaxProblem<T>&,                       \
                                           View<const Accum<T>, 1>, const SoftmaxOutput<T>&,     \
                                           Rows<T>, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
