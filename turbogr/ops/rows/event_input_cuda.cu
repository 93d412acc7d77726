// A token finds out what it reads in a first launch; the tables' gradients are sums over tokens
// sorted by the row they read.
#include <algorithm>
#include <bit>
#include <limits>

#include "turbogr/cuda/bisect.cuh"
#include "turbogr/cuda/row_launch.cuh"
#include "turbogr/ops/dense/dropout_mask_cuda.cuh"
#include "turbogr/ops/rows/event_input_kernels.h"
#include "turbogr/ops/rows/segment_sum_cuda.cuh"
#include "turbogr/ops/rows/sort_cuda.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::Eight;
using cuda::kColumns;
using cuda::over_columns;
using cuda::RowLaunch;

constexpr unsigned kThreads = 256;

// What each token reads, [N] each.
struct Places {
  std::uint32_t* source;  // row of prefix; or of events, counted from the prefix's end
  std::uint32_t* position;
  std::uint32_t* bucket;
};

__global__ void places_kernel(EventSequences s, std::int64_t tokens, std::int64_t positions,
                              TimeBuckets kind, std::int64_t last_bucket, Places places) {
  const std::int64_t token = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (token >= tokens) return;
  const std::int64_t c = s.num_prefix;
  const std::int64_t b = cuda::sequence_of(s.offsets, token);
  const EventSequence at = event_sequence(s, b);
  const std::int64_t now = at.events() > 0 ? s.times.data[at.event + at.events() - 1] : 0;
  const std::int64_t j = token - at.token - c;  // of events; below 0: a prefix token
  const std::int64_t back = max(at.history - j, std::int64_t{0});  // 0: a target
  const std::int64_t source = j < 0 ? b * c + (j + c) : s.batch() * c + at.event + j;
  const std::int64_t position = j < 0 ? j + c : min(c + back, positions - 1);
  const std::int64_t time = j < 0 ? 0 : s.times.data[at.event + j];
  places.source[token] = static_cast<std::uint32_t>(source);
  places.position[token] = static_cast<std::uint32_t>(position);
  places.bucket[token] = static_cast<std::uint32_t>(time_bucket(kind, now, time, last_bucket));
}

__global__ void count_up_kernel(std::uint32_t* values, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] = static_cast<std::uint32_t>(i);
}

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(cuda::divide_up(count, kThreads));
}

Places make_places(Cuda cuda, WorkspaceScope& scope, const EventSequences& s,
                   std::int64_t positions, TimeBuckets kind, std::int64_t buckets) {
  const std::int64_t tokens = s.num_tokens();
  TGR_CHECK(tokens <= std::numeric_limits<std::int32_t>::max(), "event_input: ", tokens,
            " tokens at once; on a GPU up to 2^31 - 1 are possible");
  const Places places = {scope.take<std::uint32_t>(tokens).data,
                         scope.take<std::uint32_t>(tokens).data,
                         scope.take<std::uint32_t>(tokens).data};
  places_kernel<<<blocks_for(tokens), kThreads, 0, cuda::stream_of(cuda.stream)>>>(
      s, tokens, positions, kind, buckets - 1, places);
  return places;
}

template <class T>
__device__ T* token_row(const EventTokens<T>& tokens, std::int64_t source) {
  const std::int64_t event = source - tokens.prefix.rows;
  return event < 0 ? tokens.prefix.row(source) : tokens.events.row(event);
}

// A team a token; reads and writes it once, and two table rows that many tokens share.
template <class T, bool kVector>
__global__ void event_input_kernel(EventTokens<const T> tokens, EventTables<const Accum<T>> tables,
                                   Places places, Accum<T> scale, DropoutDraw draw, Rows<T> x) {
  using A = Accum<T>;
  over_columns(x.rows, x.cols, [&](std::int64_t r, std::int64_t c) {
    const std::int64_t left = x.cols - c;
    const A* position = tables.position.data + places.position[r] * x.cols + c;
    const A* time = tables.time.data + places.bucket[r] * x.cols + c;
    auto value = cuda::load8<kVector>(token_row(tokens, places.source[r]) + c, left);
    const auto place = cuda::load8<kVector>(position, left);
    const auto age = cuda::load8<kVector>(time, left);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) value[i] = scale * value[i] + place[i] + age[i];
    if (draw.threshold != 0) {
      const auto factors = dropout_factors<kVector, A>(draw.row(r), c);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) value[i] *= factors[i];
    }
    cuda::store8<kVector>(x.row(r) + c, left, value);
  });
}

// Rows of dx behind the dropout, in the order of a sort.
template <class T, bool kVector>
struct DroppedRows {
  Rows<const T> dx;
  DropoutDraw draw;
  const std::uint32_t* order;

  using Ref = std::uint32_t;
  __device__ Ref refer(std::int64_t entry) const { return order[entry]; }
  __device__ Eight<Accum<T>> load(Ref row, std::int64_t c) const {
    auto d = cuda::load8<kVector>(dx.row(row) + c, dx.cols - c);
    if (draw.threshold != 0) {
      const auto factors = dropout_factors<kVector, Accum<T>>(draw.row(row), c);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) d[i] *= factors[i];
    }
    return d;
  }
};

template <class A, bool kVector>
struct AddToTable {
  View<A, 2> table;

  using Early = Eight<A>;  // what is added to
  __device__ std::uint32_t place(std::uint32_t row) const { return row; }
  __device__ Early early(std::uint32_t row, std::int64_t c) const {
    if (row >= table.shape[0] || c >= table.shape[1]) return {};
    return cuda::load8<kVector>(table.data + row * table.shape[1] + c, table.shape[1] - c);
  }
  __device__ void operator()(std::uint32_t row, std::int64_t c, const Early& before, Eight<A>& sum,
                             A*) const {
    if (row >= table.shape[0] || c >= table.shape[1]) return;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[i] += before[i];
    cuda::store8<kVector>(table.data + row * table.shape[1] + c, table.shape[1] - c, sum);
  }
};

template <class T, bool kVector>
__global__ void token_gradients_kernel(DroppedRows<T, kVector> rows, const std::uint32_t* source,
                                       Accum<T> scale, EventTokens<T> dtokens) {
  over_columns(rows.dx.rows, rows.dx.cols, [&](std::int64_t r, std::int64_t c) {
    auto d = rows.load(static_cast<std::uint32_t>(r), c);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) d[i] *= scale;
    cuda::store8<kVector>(token_row(dtokens, source[r]) + c, rows.dx.cols - c, d);
  });
}

template <class T>
bool empty_or_vectorable(Rows<T> rows) {
  return rows.rows == 0 || cuda::vectorable(rows);
}
template <class T>
bool vectorable_tokens(const EventTokens<T>& tokens) {
  return empty_or_vectorable(tokens.prefix) && empty_or_vectorable(tokens.events);
}
template <class A>
bool vectorable_tables(const EventTables<A>& tables) {
  return cuda::vectorable(tables.position.data) && cuda::vectorable(tables.time.data);
}

}  // namespace

template <class T>
void event_input(Cuda cuda, const EventSequences& sequences, const EventTokens<const T>& tokens,
                 const EventTables<const Accum<T>>& tables, const EventInputOptions& options,
                 Rows<T> x) {
  if (x.rows == 0 || x.cols == 0) return;
  WorkspaceScope scope(cuda.workspace);
  const Places places = make_places(cuda, scope, sequences, tables.position.shape[0],
                                    options.buckets, tables.time.shape[0]);
  const RowLaunch l(cuda, x.rows, x.cols);
  const bool vectors =
      vectorable_tokens(tokens) && vectorable_tables(tables) && cuda::vectorable(x);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    event_input_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(
        tokens, tables, places, static_cast<Accum<T>>(options.scale), DropoutDraw(options.dropout),
        x);
  });
  cuda::check_launch("event_input");
}

template <class T>
void event_input_backward(Cuda cuda, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables) {
  using A = Accum<T>;
  cuda::check_width("event_input_backward", dx.cols);
  if (dx.rows == 0 || dx.cols == 0) return;
  const std::int64_t tokens = dx.rows;
  WorkspaceScope scope(cuda.workspace);
  const Places places = make_places(cuda, scope, sequences, dtables.position.shape[0],
                                    options.buckets, dtables.time.shape[0]);
  std::uint32_t* const index = scope.take<std::uint32_t>(tokens).data;
  std::uint32_t* const keys = scope.take<std::uint32_t>(tokens).data;
  std::uint32_t* const order = scope.take<std::uint32_t>(tokens).data;
  const RowLaunch l(cuda, dx.rows, dx.cols);
  count_up_kernel<<<blocks_for(tokens), kThreads, 0, l.stream>>>(index, tokens);
  const bool vectors =
      vectorable_tokens(dtokens) && vectorable_tables(dtables) && cuda::vectorable(dx);
  cuda::choose_vector<T>(vectors, [&](auto vector) {
    const DroppedRows<T, vector.value> rows = {dx, DropoutDraw(options.dropout), order};
    token_gradients_kernel<T, vector.value><<<l.blocks, l.block, 0, l.stream>>>(
        rows, places.source, static_cast<A>(options.scale), dtokens);
    const auto add = [&](const std::uint32_t* read, const View<A, 2>& dtable) {
      {
        WorkspaceScope sorting(cuda.workspace);
        const std::size_t bytes = sort_pairs_bytes<std::uint32_t>(tokens);
        sort_pairs<std::uint32_t>(
            cuda.stream, read, keys, index, order, tokens,
            std::max(1, static_cast<int>(
                            std::bit_width(static_cast<std::uint64_t>(dtable.shape[0] - 1)))),
            sorting.take<unsigned char>(static_cast<std::int64_t>(bytes)).data, bytes);
      }
      segment_sum<A>(l.stream, cuda.workspace, keys, tokens, dx.cols, rows,
                     AddToTable<A, vector.value>{dtable});
    };
    add(places.position, dtables.position);
    add(places.bucket, dtables.time);
  });
  cuda::check_launch("event_input_backward");
}

template <class T>
std::size_t event_input_workspace_bytes(Cuda, std::int64_t tokens, std::int64_t width) {
  const auto sorting = static_cast<std::int64_t>(sort_pairs_bytes<std::uint32_t>(tokens));
  return 6 * workspace_bytes_of<std::uint32_t>(tokens) +
         std::max(workspace_bytes_of<unsigned char>(sorting),
                  segment_workspace_bytes<Accum<T>>(tokens, width));
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void event_input<T>(Cuda, const EventSequences&, const EventTokens<const T>&,     \
                               const EventTables<const Accum<T>>&, const EventInputOptions&, \
                               Rows<T>);                                                     \
  template void event_input_backward<T>(Cuda, const EventSequences&, Rows<const T>,          \
                                        const EventInputOptions&, const EventTokens<T>&,     \
                                        const EventTables<Accum<T>>&);                       \
  template std::size_t event_input_workspace_bytes<T>(Cuda, std::int64_t, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
