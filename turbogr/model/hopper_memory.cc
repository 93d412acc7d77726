#include "turbogr/model/hopper_memory.h"

#include <algorithm>
#include <bit>

#include "turbogr/ops/attention/hopper/attention_bands.h"

namespace turbogr::model {

std::int64_t hopper_attention_bytes(const ModelOptions& options, const ModelMemory& memory) {
  if (options.kind != ModelKind::kHstu) return 0;
  const std::int64_t tokens = memory.capacity;
  const std::int64_t batch = memory.sequences > 0 ? memory.sequences : tokens;
  const std::int64_t longest = std::min(options.max_length, tokens);
  const std::int64_t longs = cuda::most_long(tokens, batch, longest);
  std::int64_t bytes = 0;
  if (longs > 0 && !memory.deterministic) {  // rows of 64, a tile more for each sequence
    const auto wider = static_cast<std::uint64_t>(std::max(options.dq, options.dv));
    const auto width = static_cast<std::int64_t>(std::max<std::uint64_t>(32, std::bit_ceil(wider)));
    bytes += (tokens + (longs + 1) * cuda::kUnit) * options.heads * width * 4;
  }
  const bool tables = options.position_bias() || options.time_bias();
  if (!tables && options.window == 0) return bytes;
  const cuda::PairBytes pairs = cuda::pair_bytes(tokens, batch, longest);
  // Without tables all layers share one bias, of the mask alone, and it has no gradients.
  const std::int64_t keep = tables && !memory.recompute ? options.layers : 1;
  return bytes + keep * pairs.kept + (tables ? pairs.scratch : pairs.scratch / 2);
}

}  // namespace turbogr::model
