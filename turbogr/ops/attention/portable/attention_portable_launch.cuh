// Launches of the portable attention kernels; one file a number format includes it.
#pragma once

#include <algorithm>

#include "turbogr/ops/attention/portable/attention_portable_tables.cuh"

namespace turbogr::ops {

template <class T>
std::int64_t portable_slots(std::int64_t tokens, std::int64_t batch) {
  return tokens / Cut<Accum<T>>::kRows + batch;
}

template <class T>
PortableArgs<T> portable_args(AttentionKind kind, const AttentionProblem<T>& p) {
  PortableArgs<T> args{};
  args.p = p;
  args.batch = p.q.batch();
  args.slots = portable_slots<T>(p.q.tokens(), args.batch);
  args.dq = static_cast<int>(p.q.width() / p.heads);
  args.dv = static_cast<int>(p.v.cols / p.heads);
  const bool fuxi = kind == AttentionKind::kFuxi;
  args.out_columns = (fuxi ? 3 : 1) * args.dv;
  args.latent_column = fuxi ? 2 * args.dv : 0;
  args.bias = !fuxi;
  args.alpha = static_cast<Accum<T>>(p.alpha);
  args.inverse_norm = static_cast<Accum<T>>(1 / p.norm_length);
  return args;
}

// Slots x heads x slices of `columns`.
template <class T>
dim3 portable_grid(const PortableArgs<T>& args, int columns) {
  constexpr int kRows = Cut<Accum<T>>::kRows;
  return {static_cast<unsigned>(args.slots), static_cast<unsigned>(args.p.heads),
          static_cast<unsigned>((columns + kRows - 1) / kRows)};
}

template <class T>
void portable_attention(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                        Rows<T> out) {
  if (problem.q.tokens() == 0) return;
  PortableArgs<T> args = portable_args(kind, problem);
  args.out = out;
  const auto kernel =
      kind == AttentionKind::kFuxi ? portable_forward<T, true> : portable_forward<T, false>;
  kernel<<<portable_grid(args, args.dv), kPortableThreads, 0,
           static_cast<cudaStream_t>(cuda.stream)>>>(args);
  TGR_CUDA_CALL(cudaGetLastError());
}

template <class T>
void portable_attention_backward(Cuda cuda, AttentionKind kind, const AttentionProblem<T>& problem,
                                 Rows<const T> dout, const AttentionGradients<T>& gradients) {
  using A = Accum<T>;
  constexpr int kRows = Cut<A>::kRows;
  if (problem.q.tokens() == 0) return;
  const auto stream = static_cast<cudaStream_t>(cuda.stream);
  const bool fuxi = kind == AttentionKind::kFuxi;
  PortableArgs<T> args = portable_args(kind, problem);
  args.dout = dout;
  args.d = gradients;
  portable_query_gradient<T><<<portable_grid(args, args.dq), kPortableThreads, 0, stream>>>(args);
  TGR_CUDA_CALL(cudaGetLastError());
  const auto keys = fuxi ? portable_key_gradient<T, true> : portable_key_gradient<T, false>;
  keys<<<portable_grid(args, std::max(args.dq, args.dv)), kPortableThreads, 0, stream>>>(args);
  TGR_CUDA_CALL(cudaGetLastError());

  const bool position = !gradients.dbias.position.empty() && !problem.bias.position.empty();
  const bool time = !gradients.dbias.time.empty() && !problem.bias.time.empty();
  if (!position) args.d.dbias.position = {};
  if (!time) args.d.dbias.time = {};
  if (!position && !time) return;
  const std::int64_t halves = problem.mask.num_prefix.empty() ? 1 : 2;
  WorkspaceScope scratch(cuda.workspace);
  if (position) args.position_sums = scratch.take<A>(halves * args.slots * 2 * kRows).data;
  if (time) args.time_sums = scratch.take<A>(halves * args.slots * kTimeBuckets).data;
  const auto tables = fuxi ? portable_table_gradient<T, true> : portable_table_gradient<T, false>;
  const int bytes = time ? kTimeBinBytes<A> : 0;
  TGR_CUDA_CALL(cudaFuncSetAttribute(tables, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid(static_cast<unsigned>(args.slots), static_cast<unsigned>(halves));
  tables<<<grid, kPortableThreads, static_cast<std::size_t>(bytes), stream>>>(args);
  TGR_CUDA_CALL(cudaGetLastError());
  if (position) {
    const auto entries = static_cast<unsigned>(args.d.dbias.position.shape[0]);
    add_position_sums<T><<<(entries + 7) / 8, 256, 0, stream>>>(args);
    TGR_CUDA_CALL(cudaGetLastError());
  }
  if (time) {
    add_time_sums<T><<<kTimeBuckets, 256, 0, stream>>>(args, halves * args.slots);
    TGR_CUDA_CALL(cudaGetLastError());
  }
}

template <class T>
std::size_t portable_attention_workspace_bytes(const AttentionShape& shape, bool backward) {
  using A = Accum<T>;
  if (!backward || !shape.tables) return 0;
  // A prefix doubles the slots.
  const std::int64_t slots = 2 * portable_slots<T>(shape.tokens, shape.batch);
  return workspace_bytes_of<A>(slots * 2 * Cut<A>::kRows) +
         workspace_bytes_of<A>(slots * kTimeBuckets);
}

#define TGR_INSTANTIATE_PORTABLE(T)                                                              \
  template void portable_attention<T>(Cuda, AttentionKind, const AttentionProblem<T>&, Rows<T>); \
  template void portable_attention_backward<T>(Cuda, AttentionKind, const AttentionProblem<T>&,  \
                                               Rows<const T>, const AttentionGradients<T>&);     \
  template std::size_t portable_attention_workspace_bytes<T>(const AttentionShape&, bool);

}  // namespace turbogr::ops
