// Draws as rows on both devices: those of the definition, bit by bit.
#include "turbogr/ops/rows/draw_negatives.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/messages.h"
#include "tests/support/on_device.h"

namespace turbogr::ops {
namespace {

TEST(CudaDrawNegatives, PlacesStandForTheItemsOfTheDefinition) {
  const NegativeKey key = {.seed = 0x123456789abcdefull, .step = 70000};
  const std::vector<std::uint64_t> keys = {7, 1ull << 40, 0xffffffffffffffffull, 8};
  const auto tokens = static_cast<std::int64_t>(keys.size());
  for (const std::int64_t candidates : {1, 37, 3706}) {
    std::vector<std::int32_t> place_of;
    for (std::int64_t c = 0; c < candidates; ++c) {
      place_of.push_back(static_cast<std::int32_t>(5 * c + 2));
    }
    for (const std::int64_t count : {1, 2, 5, 128, 513}) {
      const NegativeSource source = {.catalogue = candidates, .uniform = count};
      std::vector<std::int32_t> wanted;
      for (const std::uint64_t row_key : keys) {
        for (std::int64_t r = 0; r < count; ++r) {
          const std::uint64_t bits = negative_bits(key, row_key, r / 2).bits[r % 2];
          wanted.push_back(static_cast<std::int32_t>(5 * draw_negative(source, r, bits) + 2));
        }
      }
      for (const Device device : test::devices()) {
        const Context ctx({.device = device, .threads = 2});
        const Tensor row_keys =
            test::place(ctx, test::tensor_of(std::vector<std::int64_t>(keys.begin(), keys.end())));
        const Tensor table = test::place(ctx, test::tensor_of(place_of));
        Tensor places =
            test::place(ctx, test::tensor_of(std::vector<std::int32_t>(wanted.size(), -1)));
        draw_places(ctx, key, {reinterpret_cast<const std::uint64_t*>(row_keys.data()), {tokens}},
                    table.view<std::int32_t, 1>(),
                    {places.view<std::int32_t, 1>().data, {tokens, count}});
        EXPECT_EQ(test::vector_of<std::int32_t>(ctx, places), wanted)
            << name_of(device) << ", " << candidates << " candidates, " << count << " draws";
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::ops
