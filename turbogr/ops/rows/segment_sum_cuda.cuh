// Sums over runs of equal keys in a sorted list, without atomics: the list is cut into pieces of
// one length, a block walks over a piece and finishes the runs that lie inside it; of a run that
// crosses pieces it leaves a partial row, and a second launch adds those in order. The result's
// bits depend on the list alone.
//
//   Source  Ref, what is known of an entry's term before its row is read;
//           __device__ Ref refer(std::int64_t entry) const;
//           __device__ Eight<A> load(const Ref& ref, std::int64_t column) const: the term, columns
//           past the width being zero
//   Finish  __device__ std::uint32_t place(std::uint32_t key) const: where a run's sum goes;
//           Early, what is read there before the sum is known;
//           __device__ Early early(std::uint32_t place, std::int64_t column) const: columns may be
//           past the width, here and below;
//           __device__ void operator()(std::uint32_t place, std::int64_t column, const Early&
//           early, Eight<A>& sum, A* shared) const: called by all threads of a block with a run's
//           sum
#pragma once

#include "turbogr/core/workspace.h"
#include "turbogr/cuda/columns.cuh"

namespace turbogr::ops {

inline constexpr std::int64_t kMinPiece = 8;
inline constexpr std::int64_t kMaxPiece = 512;
inline constexpr std::int64_t kPieces = 8192;  // where those lengths allow

// Short pieces give more blocks, long ones fewer partial rows.
inline std::int64_t segment_piece(std::int64_t count) {
  std::int64_t piece = kMinPiece;
  while (piece < kMaxPiece && piece * kPieces < count) piece *= 2;
  return piece;
}

// Of lists of up to `count` entries: a shorter one may have more pieces, but never more than these.
template <class A>
std::size_t segment_workspace_bytes(std::int64_t count, std::int64_t width) {
  const std::int64_t pieces = std::min(cuda::divide_up(count, kMinPiece),
                                       std::max(kPieces, cuda::divide_up(count, kMaxPiece)));
  return 2 * workspace_bytes_of<A>(pieces * width);
}

struct SegmentList {
  const std::uint32_t* keys;  // [count], ascending; kNoSegment: the entry counts for nothing
  std::int64_t count;
  std::int64_t piece;
  std::int64_t width;

  __device__ bool ends(std::int64_t entry) const {
    return entry + 1 == count || keys[entry + 1] != keys[entry];
  }
  __device__ bool starts(std::int64_t entry) const {
    return entry == 0 || keys[entry - 1] != keys[entry];
  }
};
inline constexpr std::uint32_t kNoSegment = 0xffffffffu;

// heads: of the run that a piece begins inside of; tails: of the run that goes on after it.
template <class A, class Source, class Finish>
__global__ void __launch_bounds__(cuda::kMaxTeam)
    segment_pieces_kernel(SegmentList list, Source source, Finish finish, A* heads, A* tails) {
  // Rows on their way before the first is added, with what is read where their sums go: most runs
  // are short, and a block would wait for each of them.
  constexpr int kAhead = 2;
  __shared__ A shared[32];
  __shared__ typename Source::Ref refs[kMaxPiece];
  __shared__ std::uint32_t places[kMaxPiece];
  __shared__ bool ends[kMaxPiece];
  const std::int64_t c = std::int64_t{threadIdx.x} * cuda::kColumns;
  const std::int64_t begin = std::int64_t{blockIdx.x} * list.piece;
  const auto count = static_cast<int>(min(list.piece, list.count - begin));
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    refs[i] = source.refer(begin + i);
    ends[i] = list.ends(begin + i);
    if (ends[i]) places[i] = finish.place(list.keys[begin + i]);
  }
  bool whole = list.starts(begin);
  cuda::Eight<A> sum = {};
  __syncthreads();
  for (int first = 0; first < count; first += kAhead) {
    cuda::Eight<A> terms[kAhead];
    typename Finish::Early early[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int entry = first + j;
      terms[j] = {};
      if (entry < count && c < list.width) terms[j] = source.load(refs[entry], c);
      early[j] = {};
      if (entry < count && ends[entry]) early[j] = finish.early(places[entry], c);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int entry = first + j;
      if (entry >= count) break;
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) sum[i] += terms[j][i];
      const bool last = ends[entry];
      if (!last && entry + 1 < count) continue;
      if (last && whole) {
        finish(places[entry], c, early[j], sum, shared);
      } else {
        // A run over a whole piece is that piece's head.
        A* parts = (whole ? tails : heads) + std::int64_t{blockIdx.x} * list.width;
#pragma unroll
        for (int i = 0; i < cuda::kColumns; ++i) {
          if (c + i < list.width) parts[c + i] = sum[i];
        }
      }
      sum = {};
      whole = true;
    }
  }
}

// The same for rows of up to 64 columns, by a warp: eight lanes hold a row, and each of the warp's
// four groups of them has every fourth entry. A run's sum is that of the groups' sums, in order.
inline constexpr int kNarrowLanes = 8;
inline constexpr std::int64_t kNarrowWidth = kNarrowLanes * cuda::kColumns;

template <class A, class Source, class Finish>
__global__ void __launch_bounds__(32)
    segment_narrow_pieces_kernel(SegmentList list, Source source, Finish finish, A* heads,
                                 A* tails) {
  constexpr int kGroups = 32 / kNarrowLanes;
  constexpr int kAhead = 4;
  __shared__ A shared[32];
  __shared__ typename Source::Ref refs[kMaxPiece];
  __shared__ std::uint32_t places[kMaxPiece];
  __shared__ bool ends[kMaxPiece];
  const int group = static_cast<int>(threadIdx.x) / kNarrowLanes;
  const std::int64_t c = std::int64_t{threadIdx.x % kNarrowLanes} * cuda::kColumns;
  const std::int64_t begin = std::int64_t{blockIdx.x} * list.piece;
  const auto count = static_cast<int>(min(list.piece, list.count - begin));
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    refs[i] = source.refer(begin + i);
    ends[i] = list.ends(begin + i);
    if (ends[i]) places[i] = finish.place(list.keys[begin + i]);
  }
  bool whole = list.starts(begin);
  cuda::Eight<A> sum = {};
  __syncwarp();
  // Ends the run at its last entry in this piece.
  const auto end_run = [&](int entry) {
#pragma unroll
    for (int lane = kNarrowLanes; lane < 32; lane *= 2) {
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) {
        sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lane);
      }
    }
    if (ends[entry] && whole) {
      // For whoever finishes, all but the first group are past the width.
      const std::int64_t column = std::int64_t{threadIdx.x} * cuda::kColumns;
      if (group > 0) sum = {};
      finish(places[entry], column, finish.early(places[entry], column), sum, shared);
    } else if (group == 0) {
      // A run over a whole piece is that piece's head.
      A* parts = (whole ? tails : heads) + std::int64_t{blockIdx.x} * list.width;
#pragma unroll
      for (int i = 0; i < cuda::kColumns; ++i) {
        if (c + i < list.width) parts[c + i] = sum[i];
      }
    }
    sum = {};
    whole = true;
  };
  for (int first = 0; first < count; first += kGroups * kAhead) {
    cuda::Eight<A> terms[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int entry = first + j * kGroups + group;
      terms[j] = {};
      if (entry < count && c < list.width) terms[j] = source.load(refs[entry], c);
    }
    const int looked_at = first + static_cast<int>(threadIdx.x);
    const unsigned last = __ballot_sync(
        0xffffffffu, static_cast<int>(threadIdx.x) < kGroups * kAhead && looked_at < count &&
                         (ends[looked_at] || looked_at + 1 == count));
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      unsigned mine = last >> (j * kGroups) & ((1u << kGroups) - 1);
      if (mine == 0) {
#pragma unroll
        for (int i = 0; i < cuda::kColumns; ++i) sum[i] += terms[j][i];
        continue;
      }
      for (int g = 0; g < kGroups; ++g, mine >>= 1) {
        if (g == group) {
#pragma unroll
          for (int i = 0; i < cuda::kColumns; ++i) sum[i] += terms[j][i];
        }
        if (mine & 1) end_run(first + j * kGroups + g);
      }
    }
  }
}

// The block of the piece in which a run that crosses pieces starts adds up its parts.
template <class A, class Source, class Finish>
__global__ void __launch_bounds__(cuda::kMaxTeam)
    segment_joins_kernel(SegmentList list, Finish finish, const A* heads, const A* tails) {
  __shared__ A shared[32];
  const std::int64_t c = std::int64_t{threadIdx.x} * cuda::kColumns;
  const std::int64_t begin = std::int64_t{blockIdx.x} * list.piece;
  const std::int64_t end = min(begin + list.piece, list.count);
  if (list.ends(end - 1)) return;  // nothing goes on
  const std::uint32_t key = list.keys[end - 1];
  if (key == list.keys[begin] && !list.starts(begin)) return;  // it began before
  const std::uint32_t place = finish.place(key);
  const typename Finish::Early early = finish.early(place, c);
  cuda::Eight<A> sum = {};
  const auto add = [&](const A* parts) {
#pragma unroll
    for (int i = 0; i < cuda::kColumns; ++i) {
      if (c + i < list.width) sum[i] += parts[c + i];
    }
  };
  add(tails + std::int64_t{blockIdx.x} * list.width);
  // The pieces it covers whole, and the one it ends in.
  std::int64_t piece = blockIdx.x + 1;
  while ((piece + 1) * list.piece < list.count && list.keys[(piece + 1) * list.piece] == key) {
    add(heads + piece * list.width);
    ++piece;
  }
  add(heads + piece * list.width);
  finish(place, c, early, sum, shared);
}

template <class A, class Source, class Finish>
void segment_sum(cudaStream_t stream, Workspace& workspace, const std::uint32_t* keys,
                 std::int64_t count, std::int64_t width, const Source& source,
                 const Finish& finish) {
  if (count == 0 || width == 0) return;
  const SegmentList list = {keys, count, segment_piece(count), width};
  const std::int64_t pieces = cuda::divide_up(count, list.piece);
  WorkspaceScope scope(workspace);
  A* heads = scope.take<A, 2>({pieces, width}).data;
  A* tails = scope.take<A, 2>({pieces, width}).data;
  const unsigned threads = cuda::team_block(width).x;
  const auto blocks = static_cast<unsigned>(pieces);
  if (width <= kNarrowWidth) {
    segment_narrow_pieces_kernel<A><<<blocks, 32, 0, stream>>>(list, source, finish, heads, tails);
  } else {
    segment_pieces_kernel<A><<<blocks, threads, 0, stream>>>(list, source, finish, heads, tails);
  }
  segment_joins_kernel<A, Source><<<blocks, threads, 0, stream>>>(list, finish, heads, tails);
}

}  // namespace turbogr::ops
