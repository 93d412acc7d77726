#include "turbogr/cuda/half.cuh"
#include "turbogr/ops/rows/move_rows_kernels.h"

namespace turbogr::ops::kernels {
namespace {

using cuda::kColumns;

// A warp a row: limited by memory.
template <class From, class To, class Index, bool kVector>
__global__ void move_rows_kernel(Rows<const From> from, const Index* from_places, Rows<To> to,
                                 const std::int32_t* to_places, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (i >= count) return;
  const auto source = static_cast<std::int64_t>(from_places[i]);
  const auto target = static_cast<std::int64_t>(to_places[i]);
  if (source < 0 || source >= from.rows || target < 0 || target >= to.rows) return;
  const From* read = from.row(source);
  To* write = to.row(target);
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * kColumns; c < to.cols; c += 32 * kColumns) {
    const cuda::Eight<float> value = cuda::load_row8<kVector, float>(read + c, to.cols - c);
    if constexpr (std::is_same_v<To, f16>) {
      cuda::store_half8<kVector>(write + c, to.cols - c, value);
    } else {
      cuda::store8<kVector>(write + c, to.cols - c, value);
    }
  }
}

}  // namespace

template <class From, class To, class Index>
void move_rows(Cuda cuda, Rows<const From> from, View<const Index, 1> from_places, Rows<To> to,
               View<const std::int32_t, 1> to_places) {
  const std::int64_t count = from_places.shape[0];
  const dim3 block(32, 4);
  const auto blocks = static_cast<unsigned>(cuda::divide_up(count, block.y));
  const bool vectors = cuda::vectorable(from) && cuda::vectorable(to);
  cuda::choose_vector<From>(vectors, [&](auto vector) {
    move_rows_kernel<From, To, Index, vector.value>
        <<<blocks, block, 0, cuda::stream_of(cuda.stream)>>>(from, from_places.data, to,
                                                             to_places.data, count);
  });
  cuda::check_launch("move_rows");
}

TGR_INSTANTIATE_MOVE_ROWS(Cuda)

}  // namespace turbogr::ops::kernels
