// Scores of a chunk of queries against a chunk of items by one product, then a block a query. Every
// product of a call has one shape, so that equal rows get equal bits wherever they stand.
#include <algorithm>
#include <limits>

#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/dense/gemm_cuda.h"
#include "turbogr/ops/rows/embedding_kernels.h"
#include "turbogr/ops/rows/top_k_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kQueries = 1024;
constexpr std::int64_t kItems = 8192;
constexpr unsigned kThreads = 256;
constexpr int kRoom = 2048;  // candidates in shared memory
constexpr std::int64_t kMostKept = kRoom / 2;

// A NaN that no product makes: the item is excluded.
__device__ float excluded_mark(float) { return __uint_as_float(0x7fffdeadu); }
__device__ double excluded_mark(double) { return __longlong_as_double(0x7fffdead00000000ll); }
__device__ bool is_excluded(float x) { return __float_as_uint(x) == 0x7fffdeadu; }
__device__ bool is_excluded(double x) { return __double_as_longlong(x) == 0x7fffdead00000000ll; }

// A tile of products and what turns them into scores.
template <class T>
struct Tile {
  using A = Accum<T>;
  A* products;  // [queries, kItems]
  std::int64_t first_query, queries, first_item, items;
  const A* query_scale;  // or null
  const A* item_scale;
  const std::int64_t* target;  // or null
  const T* target_rows;        // or null: the table's
  const A* target_scale;       // of those, or null
  unsigned long long* bad;     // the first place whose score is not finite
  std::int64_t num_items;

  __device__ A score(std::int64_t q, std::int64_t item, A product) const {
    if (query_scale != nullptr) product *= query_scale[q];
    if (item_scale != nullptr) product *= item_scale[item];
    return product;
  }
  __device__ void report(std::int64_t q, std::int64_t item) const {
    const std::int64_t place = q * num_items + item;
    atomicMin(bad, static_cast<unsigned long long>(place));
  }
};

// A block has a query.
template <class T>
__global__ void exclude_kernel(Tile<T> tile, Offsets offsets, const std::int64_t* excluded) {
  using A = Accum<T>;
  const std::int64_t q = tile.first_query + blockIdx.x;
  A* row = tile.products + blockIdx.x * kItems;
  for (std::int64_t i = offsets.data[q] + threadIdx.x; i < offsets.data[q + 1]; i += kThreads) {
    const std::int64_t id = excluded[i] - tile.first_item;
    if (id < 0 || id >= tile.items) continue;
    if (tile.target != nullptr && tile.target[q] == excluded[i]) continue;
    row[id] = excluded_mark(A{});
  }
}

// The scores of targets, whose rows are the chunk's: query q's stands at its own index.
template <class T>
__global__ void target_scores_kernel(Tile<T> tile, Accum<T>* scores) {
  const std::int64_t local = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (local >= tile.queries) return;
  const std::int64_t q = tile.first_query + local;
  Accum<T> product = tile.products[local * kItems + local];
  if (tile.target_rows == nullptr) {
    product = tile.score(q, tile.target[q], product);
  } else {
    if (tile.query_scale != nullptr) product *= tile.query_scale[q];
    if (tile.target_scale != nullptr) product *= tile.target_scale[q];
  }
  scores[local] = product;
}

template <class T>
__global__ void count_higher_kernel(Tile<T> tile, const Accum<T>* target_scores,
                                    std::int64_t* ranks) {
  using A = Accum<T>;
  __shared__ int counts[kThreads / 32];
  const std::int64_t q = tile.first_query + blockIdx.x;
  const A* row = tile.products + blockIdx.x * kItems;
  const A threshold = target_scores[blockIdx.x];
  const std::int64_t own = tile.target[q];
  int higher = 0;
  for (std::int64_t j = threadIdx.x; j < tile.items; j += kThreads) {
    if (is_excluded(row[j])) continue;
    const std::int64_t item = tile.first_item + j;
    const A score = tile.score(q, item, row[j]);
    if (!isfinite(score)) tile.report(q, item);
    higher += score > threshold && item != own;
  }
  for (int lane = 16; lane > 0; lane /= 2) higher += __shfl_xor_sync(0xffffffffu, higher, lane);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = higher;
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::int64_t sum = tile.first_item == 0 ? 1 : ranks[q];
  for (const int count : counts) sum += count;
  ranks[q] = sum;
}

// Whether a is before b: higher, or as high with a smaller id.
template <class A>
__device__ bool better(A a, std::int64_t a_id, A b, std::int64_t b_id) {
  return a > b || (a == b && a_id < b_id);
}

template <class A>
struct Candidates {
  A score[kRoom];
  std::int64_t id[kRoom];
  int count;

  // Best first; what is past the count is worse than all.
  __device__ void sort() {
    for (int i = count + static_cast<int>(threadIdx.x); i < kRoom; i += kThreads) {
      score[i] = -std::numeric_limits<A>::infinity();
      id[i] = std::numeric_limits<std::int64_t>::max();
    }
    __syncthreads();
    for (int size = 2; size <= kRoom; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        for (int i = static_cast<int>(threadIdx.x); i < kRoom; i += kThreads) {
          const int other = i ^ step;
          if (other <= i) continue;
          const bool falling = (i & size) == 0;
          if (better(score[other], id[other], score[i], id[i]) == falling) {
            const A s = score[i];
            const std::int64_t d = id[i];
            score[i] = score[other];
            id[i] = id[other];
            score[other] = s;
            id[other] = d;
          }
        }
        __syncthreads();
      }
    }
  }
};

// Joins the chunk's scores to the best k so far, which are in the output.
template <class T>
__global__ void keep_best_kernel(Tile<T> tile, TopKOutput<T> output) {
  using A = Accum<T>;
  extern __shared__ unsigned char memory[];
  auto& best = *reinterpret_cast<Candidates<A>*>(memory);
  const std::int64_t k = output.ids.shape[1];
  const std::int64_t q = tile.first_query + blockIdx.x;
  const A* row = tile.products + blockIdx.x * kItems;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  const int before = tile.first_item == 0 ? 0 : static_cast<int>(output.count.data[q]);
  for (int i = static_cast<int>(threadIdx.x); i < before; i += kThreads) {
    best.score[i] = output.scores.data[q * k + i];
    best.id[i] = output.ids.data[q * k + i];
  }
  if (threadIdx.x == 0) best.count = before;
  __syncthreads();
  bool full = before == k;
  A threshold = full ? best.score[k - 1] : kLowest;
  for (std::int64_t begin = 0; begin < tile.items; begin += kThreads) {
    const std::int64_t j = begin + threadIdx.x;
    if (j < tile.items && !is_excluded(row[j])) {
      const std::int64_t item = tile.first_item + j;
      const A score = tile.score(q, item, row[j]);
      if (!isfinite(score)) tile.report(q, item);
      // An item that only equals the worst kept has a larger id: chunks come in order.
      if (!full || score > threshold) {
        const int at = atomicAdd(&best.count, 1);
        best.score[at] = score;
        best.id[at] = item;
      }
    }
    __syncthreads();
    const bool last = begin + kThreads >= tile.items;
    if (last || best.count + static_cast<int>(kThreads) > kRoom) {
      const int count = best.count;
      __syncthreads();
      best.sort();
      if (threadIdx.x == 0) best.count = min(count, static_cast<int>(k));
      __syncthreads();
      full = best.count == k;
      threshold = full ? best.score[k - 1] : kLowest;
    }
  }
  const int kept = best.count;
  for (std::int64_t i = threadIdx.x; i < k; i += kThreads) {
    output.scores.data[q * k + i] = i < kept ? best.score[i] : kLowest;
    output.ids.data[q * k + i] = i < kept ? best.id[i] : -1;
  }
  if (threadIdx.x == 0) output.count.data[q] = kept;
}

__global__ void ascending_kernel(std::int64_t* numbers) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  numbers[i] = i;
}

// A target that is no item gets no row.
__global__ void chosen_rows_kernel(const std::int64_t* items, View<const std::int64_t, 1> chosen,
                                   View<std::int64_t, 1> rows) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows.shape[0]) return;
  const std::int64_t item = items[i];
  rows.data[i] = item >= 0 && item < chosen.shape[0] ? chosen.data[item] : -1;
}

// One call: walks over chunks of queries and of items.
template <class T>
class Retrieval {
 public:
  using A = Accum<T>;

  Retrieval(Cuda cuda, const char* op, WorkspaceScope& scope, const RetrievalInputs<T>& inputs)
      : cuda_(cuda),
        op_(op),
        in_(inputs),
        stream_(cuda::stream_of(cuda.stream)),
        products_(scope.take<A, 2>({kQueries, kItems}).data),
        target_scores_(scope.take<A>(kQueries).data),
        bad_(scope.take<unsigned long long>(1).data),
        items_(inputs.num_items()),
        row_numbers_(scope.take<std::int64_t>(kItems).data) {
    const std::int64_t width = inputs.table.cols;
    const std::int64_t stride = cuda::divide_up(width, 8) * 8;
    copied_ = {scope.take<T, 2>({kItems, stride}).data, kItems, width, stride};
    // A chunk of such a table is laid out as a copy would be, so it need not be copied.
    direct_ = inputs.chosen.data == nullptr && inputs.table.dtype == dtype_of<T>() &&
              inputs.table.stride == stride &&
              reinterpret_cast<std::uintptr_t>(inputs.table.data) % 256 == 0;
    TGR_CUDA_CALL(cudaMemsetAsync(bad_, 0xff, sizeof *bad_, stream_));
    if (inputs.chosen.data == nullptr) {
      ascending_kernel<<<kItems / kThreads, kThreads, 0, stream_>>>(row_numbers_);
    }
  }

  static std::size_t workspace_bytes(std::int64_t width) {
    return workspace_bytes_of<double>(kQueries * kItems) + workspace_bytes_of<double>(kQueries) +
           workspace_bytes_of<unsigned long long>(1) + workspace_bytes_of<std::int64_t>(kItems) +
           workspace_bytes_of<double>(kItems * cuda::divide_up(width, 8) * 8) +
           workspace_bytes_of<unsigned char>(kGemmScratchBytes);
  }

  A* target_scores() const { return target_scores_; }
  cudaStream_t stream() const { return stream_; }

  // before(tile) once a chunk of queries, where there are targets, with their products on the
  // tile's diagonal; then each(tile) for every chunk of items.
  template <class Before, class Each>
  void run(Before&& before, Each&& each) {
    for (std::int64_t first = 0; first < in_.query.rows; first += kQueries) {
      Tile<T> tile = {.products = products_,
                      .first_query = first,
                      .queries = std::min(kQueries, in_.query.rows - first),
                      .query_scale = in_.query_inverse_norms.data,
                      .item_scale = in_.table_inverse_norms.data,
                      .target = in_.target.data,
                      .target_rows = in_.target_rows.data,
                      .target_scale = in_.target_inverse_norms.data,
                      .bad = bad_,
                      .num_items = items_};
      if (in_.target.data != nullptr) {
        copy_targets(first, tile.queries);
        multiply(tile, copied_);
        before(tile);
      }
      for (std::int64_t item = 0; item < items_; item += kItems) {
        tile.first_item = item;
        tile.items = std::min(kItems, items_ - item);
        if (direct_ && tile.items == kItems) {
          const Rows<const T> table = in_.table.template as<T>();
          multiply(tile, {table.row(item), kItems, table.cols, table.stride});
        } else {
          copy_items(item, tile.items);
          multiply(tile, copied_);
        }
        if (in_.excluded_offsets.data != nullptr) {
          exclude_kernel<T><<<static_cast<unsigned>(tile.queries), kThreads, 0, stream_>>>(
              tile, in_.excluded_offsets, in_.excluded.data);
        }
        each(tile);
      }
    }
    cuda::check_launch(op_);
    unsigned long long bad = 0;
    TGR_CUDA_CALL(cudaMemcpyAsync(&bad, bad_, sizeof bad, cudaMemcpyDeviceToHost, stream_));
    TGR_CUDA_CALL(cudaStreamSynchronize(stream_));
    const auto items = static_cast<unsigned long long>(std::max<std::int64_t>(items_, 1));
    TGR_CHECK(bad == std::numeric_limits<unsigned long long>::max(), op_, ": the score of query ",
              bad / items, " against item ", bad % items,
              " is not finite; look for overflow or NaN in the weights, which too high a "
              "learning rate leaves");
  }

 private:
  void copy_targets(std::int64_t first, std::int64_t count) {
    if (in_.target_rows.data != nullptr) {
      TGR_CUDA_CALL(cudaMemcpy2DAsync(
          copied_.data, static_cast<std::size_t>(copied_.stride) * sizeof(T),
          in_.target_rows.row(first), static_cast<std::size_t>(in_.target_rows.stride) * sizeof(T),
          static_cast<std::size_t>(copied_.cols) * sizeof(T), static_cast<std::size_t>(count),
          cudaMemcpyDeviceToDevice, stream_));
      return;
    }
    const std::int64_t* rows = in_.target.data + first;
    if (in_.chosen.data != nullptr) {
      chosen_rows_kernel<<<static_cast<unsigned>(cuda::divide_up(count, kThreads)), kThreads, 0,
                           stream_>>>(rows, in_.chosen, {row_numbers_, {count}});
      rows = row_numbers_;
    }
    copy_rows(0, rows, count);
  }
  void copy_items(std::int64_t first, std::int64_t count) {
    if (in_.chosen.data == nullptr) {
      copy_rows(first, row_numbers_, count);
    } else {
      copy_rows(0, in_.chosen.data + first, count);
    }
  }
  // Rows of the table, counted from `begin`, in T.
  void copy_rows(std::int64_t begin, const std::int64_t* rows, std::int64_t count) {
    with_rows<T>(in_.table, [&]<class Stored>(Rows<const Stored> table) {
      const Rows<const Stored> from(table.row(begin), table.rows - begin, table.cols, table.stride);
      gather_rows<Stored, T, std::int64_t>(cuda_, from, {rows, {count}},
                                           {copied_.data, count, copied_.cols, copied_.stride});
    });
  }
  void multiply(const Tile<T>& tile, Rows<const T> items) {
    items.rows = kItems;
    gemm<T>(cuda_, {.a = Rows<const T>(in_.query.row(tile.first_query), tile.queries,
                                       in_.query.cols, in_.query.stride),
                    .b = items,
                    .b_transposed = true,
                    .c = Rows<A>(products_, tile.queries, kItems, kItems)});
  }

  Cuda cuda_;
  const char* op_;
  const RetrievalInputs<T>& in_;
  cudaStream_t stream_;
  A* products_;
  A* target_scores_;
  unsigned long long* bad_;
  std::int64_t items_;
  std::int64_t* row_numbers_;  // 0, 1, 2 ...; or, of items that were chosen, rows of targets
  Rows<T> copied_;
  bool direct_ = false;
};

}  // namespace

template <class T>
void top_k(Cuda cuda, const RetrievalInputs<T>& inputs, const TopKOutput<T>& output) {
  using A = Accum<T>;
  const std::int64_t k = output.ids.shape[1];
  TGR_CHECK(k <= kMostKept, "top_k: k is ", k, "; on a GPU up to ", kMostKept, " are possible");
  WorkspaceScope scope(cuda.workspace);
  Retrieval<T> retrieval(cuda, "top_k", scope, inputs);
  constexpr auto kShared = static_cast<int>(sizeof(Candidates<A>));
  TGR_CUDA_CALL(cudaFuncSetAttribute(keep_best_kernel<T>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  retrieval.run(
      [](const Tile<T>&) {},
      [&](const Tile<T>& tile) {
        keep_best_kernel<T>
            <<<static_cast<unsigned>(tile.queries), kThreads, kShared, retrieval.stream()>>>(
                tile, output);
      });
}

template <class T>
void rank_of_target(Cuda cuda, const RetrievalInputs<T>& inputs, View<std::int64_t, 1> ranks) {
  WorkspaceScope scope(cuda.workspace);
  Retrieval<T> retrieval(cuda, "rank_of_target", scope, inputs);
  retrieval.run(
      [&](const Tile<T>& tile) {
        target_scores_kernel<T>
            <<<static_cast<unsigned>(cuda::divide_up(tile.queries, kThreads)), kThreads, 0,
               retrieval.stream()>>>(tile, retrieval.target_scores());
      },
      [&](const Tile<T>& tile) {
        count_higher_kernel<T>
            <<<static_cast<unsigned>(tile.queries), kThreads, 0, retrieval.stream()>>>(
                tile, retrieval.target_scores(), ranks.data);
      });
}

std::size_t top_k_workspace_bytes(Cuda, std::int64_t, std::int64_t width, std::int64_t,
                                  std::int64_t) {
  return Retrieval<double>::workspace_bytes(width);
}

#define TGR_INSTANTIATE(T)                                                       \
  template void top_k<T>(Cuda, const RetrievalInputs<T>&, const TopKOutput<T>&); \
  template void rank_of_target<T>(Cuda, const RetrievalInputs<T>&, View<std::int64_t, 1>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
