#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention_plan.cuh"

namespace turbogr::cuda {
namespace {

constexpr int kThreads = 256;

__device__ const PassPlanArgs& pass_of(const PlanArgs& args, unsigned number) {
  return number == 0 ? args.forward : args.backward;
}

// One band after the other: a block a pass.
__global__ void cut_kernel(const __grid_constant__ PlanArgs args) {
  const PassPlanArgs& pass = pass_of(args, blockIdx.x);
  const int tiles = pass.bounds[args.bands.count] / args.heads;
  if (tiles == 0) return;
  const BandCut cut = {args.bands.room, args.heads, pass.slots};
  int end = 0;
  for (int band = 0; band < args.bands.count - 1; ++band) {
    end = band_end(pass.areas, tiles, end, cut, args.bands.count - 1 - band);
    pass.bounds[band + 1] = end * args.heads;
  }
}

// Where tiles are a band's first ones of a sequence, that band's range of it.
__global__ void ranges_kernel(const __grid_constant__ PlanArgs args) {
  const bool queries = blockIdx.y == 0;
  const PassPlanArgs& pass = pass_of(args, blockIdx.y);
  const int tiles = pass.bounds[args.bands.count] / args.heads;
  const int units = pass.rows / kUnit;
  const auto stride = static_cast<int>(gridDim.x * blockDim.x);
  for (auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < tiles; i += stride) {
    int band = 0;
    while (pass.bounds[band + 1] <= i * args.heads) ++band;
    const int first = pass.bounds[band] / args.heads;
    const int end = pass.bounds[band + 1] / args.heads;
    const AttentionItem item = pass.items[i * args.heads];
    const int block = item.block;
    const int blocks = tiles_of(item.length, pass.rows);
    if (i != first && block != (queries ? blocks - 1 : 0)) continue;
    const int area = pass.areas[i] - pass.areas[first];
    const int sequence_tiles = tiles_of(item.length);
    pass.ranges[band * args.most_long + item.sequence] =
        queries ? query_range(area, block, min(block + 1, end - i), units, sequence_tiles)
                : key_range(area, block, min(blocks - block, end - i), units, sequence_tiles);
  }
}

}  // namespace

void launch_bands(const PlanArgs& args, cudaStream_t stream) {
  cut_kernel<<<2, 1, 0, stream>>>(args);
  check(cudaGetLastError(), "attention bands");
  ranges_kernel<<<dim3(64, 2), kThreads, 0, stream>>>(args);
  check(cudaGetLastError(), "attention bands");
}

}  // namespace turbogr::cuda
