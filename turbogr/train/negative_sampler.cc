#include "turbogr/train/negative_sampler.h"

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::train {
namespace {

// Keeps the streams of negatives apart from dropout's, which share the seed.
constexpr std::uint64_t kOwnStream = std::uint64_t{1} << 63;
constexpr std::uint64_t kSharedRow = ~std::uint64_t{0};

void draw_row(const NegativeKey& key, std::uint64_t row_key, std::int64_t catalogue,
              std::int64_t count, std::int64_t* ids) {
  const auto bound = static_cast<std::uint64_t>(catalogue);
  for (std::int64_t r = 0; r < count; r += 2) {
    const auto block = philox(key.seed, row_key,
                              kOwnStream | (key.step << 24) | static_cast<std::uint64_t>(r / 2));
    const std::uint64_t first = (std::uint64_t{block[0]} << 32) | block[1];
    const std::uint64_t second = (std::uint64_t{block[2]} << 32) | block[3];
    ids[r] = static_cast<std::int64_t>(uniform_below(first, bound));
    if (r + 1 < count) ids[r + 1] = static_cast<std::int64_t>(uniform_below(second, bound));
  }
}

}  // namespace

void draw_own_negatives(const Context& ctx, const NegativeKey& key, std::int64_t catalogue,
                        View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids) {
  TGR_CHECK(catalogue > 0, "negatives from a catalogue of ", catalogue,
            " items; it needs 1 or more");
  TGR_CHECK(row_keys.shape[0] == ids.shape[0], "negatives: ", row_keys.shape[0], " row keys for ",
            ids.shape[0], " tokens");
  parallel_ranges(ctx.pool(), ids.shape[0], 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      draw_row(key, row_keys(token), catalogue, ids.shape[1], ids.data + token * ids.shape[1]);
    }
  });
}

void draw_shared_negatives(const NegativeKey& key, std::int64_t catalogue,
                           View<std::int64_t, 1> ids) {
  TGR_CHECK(catalogue > 0, "negatives from a catalogue of ", catalogue,
            " items; it needs 1 or more");
  draw_row(key, kSharedRow, catalogue, ids.shape[0], ids.data);
}

}  // namespace turbogr::train
