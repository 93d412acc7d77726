#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/rows/draw_negatives_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr unsigned kThreads = 256;

// A thread has two neighbouring places of a set, which one Philox block draws.
__global__ void draw_places_kernel(NegativeKey key, View<const std::uint64_t, 1> row_keys,
                                   View<const std::int32_t, 1> place_of,
                                   View<std::int32_t, 2> places) {
  const std::int64_t count = places.shape[1];
  const std::int64_t pairs = (count + 1) / 2;
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= places.shape[0] * pairs) return;
  const std::int64_t token = i / pairs, pair = i % pairs;
  const NegativeBits drawn = negative_bits(key, row_keys.data[token], pair);
  std::int32_t* to = places.data + token * count + 2 * pair;
  const auto candidates = static_cast<std::uint64_t>(place_of.shape[0]);
  to[0] = place_of.data[uniform_below(drawn.bits[0], candidates)];
  if (2 * pair + 1 < count) to[1] = place_of.data[uniform_below(drawn.bits[1], candidates)];
}

}  // namespace

void draw_places(Cuda cuda, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 View<const std::int32_t, 1> place_of, View<std::int32_t, 2> places) {
  const std::int64_t pairs = places.shape[0] * ((places.shape[1] + 1) / 2);
  draw_places_kernel<<<static_cast<unsigned>(cuda::divide_up(pairs, kThreads)), kThreads, 0,
                       cuda::stream_of(cuda.stream)>>>(key, row_keys, place_of, places);
  cuda::check_launch("draw_places");
}

}  // namespace turbogr::ops::kernels
