// The losses of tokens with negatives of their own (sampled_softmax_own_cuda.cuh).
#include "turbogr/ops/softmax/sampled_softmax_own_cuda.cuh"

namespace turbogr::ops::kernels {
namespace {

// Of a lane's running sum of exponentials; `largest` is finite.
template <class A>
__device__ void add_exponential(A logit, A& largest, A& sum) {
  const A higher = max(largest, logit);
  sum = sum * exponential(largest - higher) + exponential(logit - higher);
  largest = higher;
}

// Joins the lanes' sums; `first` is the positive's logit.
template <class T, class Negative>
__device__ void finish_loss(const OwnArgs<T, Negative>& args, std::int64_t token, Accum<T> first,
                            Accum<T> largest, Accum<T> sum) {
  using A = Accum<T>;
  A most = largest;
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2)
    most = max(most, __shfl_xor_sync(0xffffffffu, most, lane));
  sum = cuda::warp_sum(sum * exponential(largest - most));
  if (threadIdx.x != 0) return;
  const A log_sum = log(sum);
  args.log_sum_exp[token] = most + log_sum;
  args.loss[token] = most - first + log_sum;
}

template <class T, class Negative, int kChunks, bool kVector>
__global__ void own_kernel(OwnArgs<T, Negative> args) {
  using A = Accum<T>;
  const std::int64_t place = std::int64_t{blockIdx.x} * kOwnWarps + threadIdx.y;
  if (place >= args.query.rows) return;
  const std::int64_t token = args.token_at(place);
  const WarpToken<T, kChunks, kVector> query(args.query.row(token), args.query.cols,
                                             args.norms.query[token] * args.scale);
  WarpRow<A, T, kChunks, kVector> row;
  const std::int32_t positive = args.positive[token];
  row.load(args.items.row(positive), args.items.cols);
  const A first = query.dot(row) * args.norms.items[positive];
  // Each lane has a share of the negatives, and lane 0 the positive.
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  A largest = first;
  A sum = threadIdx.x == 0 ? A(1) : A(0);
  for (std::int64_t m = 0; m < args.owners; ++m) {
    const std::int64_t owner = args.token_at(place + m);
    for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
      A mine = kLowest;
      over_negatives<kChunks, kVector>(args, owner, begin,
                                       [&](int j, std::int32_t item, const auto& loaded) {
                                         A logit = query.dot(loaded) * args.norms.reading[item];
                                         if (args.correction != nullptr)
                                           logit -= args.correction[item];
                                         if (static_cast<int>(threadIdx.x) == j && item != positive)
                                           mine = logit;
                                       });
      add_exponential(mine, largest, sum);
    }
  }
  finish_loss(args, token, first, largest, sum);
}

// The logits of a stretch of the ring, to be summed by all who use them.
template <class T, class Negative, int kChunks, bool kVector>
__global__ void shared_logits_kernel(OwnArgs<T, Negative> args) {
  using A = Accum<T>;
  const std::int64_t local = std::int64_t{blockIdx.x} * kOwnWarps + threadIdx.y;
  if (local >= args.rows) return;
  const std::int64_t token = args.token_at(args.first + local);
  const WarpToken<T, kChunks, kVector> query(args.query.row(token), args.query.cols,
                                             args.norms.query[token] * args.scale);
  const std::int32_t positive = args.positive[token];
  WarpRow<A, T, kChunks, kVector> row;
  row.load(args.items.row(positive), args.items.cols);
  const A first = query.dot(row) * args.norms.items[positive];
  if (threadIdx.x == 0) args.positives[local] = first;
  for (std::int64_t begin = 0; begin < args.num_negatives; begin += 32) {
    A mine = -std::numeric_limits<A>::infinity();
    over_negatives<kChunks, kVector>(args, token, begin,
                                     [&](int j, std::int32_t item, const auto& loaded) {
                                       A logit = query.dot(loaded) * args.norms.reading[item];
                                       if (args.correction != nullptr)
                                         logit -= args.correction[item];
                                       if (static_cast<int>(threadIdx.x) == j && item != positive)
                                         mine = logit;
                                     });
    const std::int64_t r = begin + threadIdx.x;
    if (r < args.num_negatives) args.logits[local * args.num_negatives + r] = mine;
  }
}

// A warp a token: its own logits and those of its partners.
template <class T, class Negative>
__global__ void sum_shared_logits_kernel(OwnArgs<T, Negative> args) {
  using A = Accum<T>;
  const std::int64_t local = std::int64_t{blockIdx.x} * kOwnWarps + threadIdx.y;
  if (args.first + local >= args.last) return;
  const std::int64_t token = args.token_at(args.first + local);
  const std::int32_t positive = args.positive[token];
  const A first = args.positives[local];
  A largest = first;
  A sum = threadIdx.x == 0 ? A(1) : A(0);
  for (std::int64_t m = 0; m < args.users; ++m) {
    const std::int64_t owner = args.token_at(args.first + local + m);
    const A* logits = args.logits + (local + m) % args.rows * args.num_negatives;
    const std::int32_t* rows = args.negatives + owner * args.num_negatives;
    for (std::int64_t r = threadIdx.x; r < args.num_negatives; r += 32) {
      if (rows[r] != positive) add_exponential(logits[r], largest, sum);
    }
  }
  finish_loss(args, token, first, largest, sum);
}

// As LogitRounds of the CPU: a round makes `sums` losses from the logits of `rows` tokens.
struct LogitRounds {
  std::int64_t sums, rows;

  LogitRounds(std::int64_t tokens, std::int64_t num_negatives, std::int64_t num_sharers) {
    const std::int64_t room = kMaxOwnPairs / std::max(num_negatives, std::int64_t{1});
    rows = std::min(tokens, std::max(room, num_sharers));
    sums = rows == tokens ? tokens : rows - num_sharers + 1;
  }
};

template <class T, class Negative>
void softmax_shared_logits(Cuda cuda, WorkspaceScope& scope, OwnArgs<T, Negative> args) {
  const std::int64_t tokens = args.query.rows;
  const LogitRounds rounds(tokens, args.num_negatives, args.users);
  args.logits = scope.take<Accum<T>, 2>({rounds.rows, args.num_negatives}).data;
  args.positives = scope.take<Accum<T>>(rounds.rows).data;
  const bool vectors = args.vectorable();
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  for (args.first = 0; args.first < tokens; args.first += rounds.sums) {
    args.last = std::min(args.first + rounds.sums, tokens);
    args.rows = rounds.rows;
    cuda::choose_vector<T>(vectors, [&](auto vector) {
      choose_chunks<vector.value>(args.query.cols, [&](auto chunks) {
        shared_logits_kernel<T, Negative, chunks.value, vector.value>
            <<<own_blocks(rounds.rows), dim3(32, kOwnWarps), 0, stream>>>(args);
      });
    });
    sum_shared_logits_kernel<T, Negative>
        <<<own_blocks(args.last - args.first), dim3(32, kOwnWarps), 0, stream>>>(args);
  }
  cuda::check_launch("sampled_softmax");
}

}  // namespace

template <class T>
void softmax_own(Cuda cuda, const SoftmaxProblem<T>& problem, const SoftmaxOutput<T>& output) {
  choose_negative(problem, [&](auto negative) {
    using Negative = decltype(negative);
    WorkspaceScope scope(cuda.workspace);
    auto args = own_args<T, Negative>(problem, take_norms(cuda, scope, problem));
    args.loss = output.loss.data;
    args.log_sum_exp = output.log_sum_exp.data;
    if (args.users > 1) {
      softmax_shared_logits(cuda, scope, args);
      return;
    }
    cuda::choose_vector<T>(args.vectorable(), [&](auto vector) {
      choose_chunks<vector.value>(problem.width(), [&](auto chunks) {
        own_kernel<T, Negative, chunks.value, vector.value>
            <<<own_blocks(problem.tokens()), dim3(32, kOwnWarps), 0,
               cuda::stream_of(cuda.stream)>>>(args);
      });
    });
    cuda::check_launch("sampled_softmax");
  });
}

std::size_t cuda_shared_logits_workspace_bytes(std::int64_t tokens, std::int64_t num_negatives,
                                               std::int64_t num_sharers) {
  const std::int64_t rows = LogitRounds(tokens, num_negatives, num_sharers).rows;
  return workspace_bytes_of<double>(rows * num_negatives) + workspace_bytes_of<double>(rows);
}

template void softmax_own<double>(Cuda, const SoftmaxProblem<double>&,
                                  const SoftmaxOutput<double>&);
template void softmax_own<float>(Cuda, const SoftmaxProblem<float>&, const SoftmaxOutput<float>&);
template void softmax_own<bf16>(Cuda, const SoftmaxProblem<bf16>&, const SoftmaxOutput<bf16>&);

}  // namespace turbogr::ops::kernels
