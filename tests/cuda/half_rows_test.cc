// f16 rows on both devices: the same bits.
#include "turbogr/ops/rows/half_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/on_device.h"

namespace turbogr::ops {
namespace {

struct Half {
  std::vector<std::uint16_t> values;
  std::vector<float> scale;

  bool operator==(const Half&) const = default;
};

Half fetch(const Context& ctx, const Tensor& values, const Tensor& scale) {
  Half half;
  for (const f16 value : test::vector_of<f16>(ctx, values)) half.values.push_back(value.bits);
  half.scale = test::vector_of<float>(ctx, scale);
  return half;
}

TEST(CudaHalfRows, HaveTheHostsBits) {
  TGR_SKIP_WITHOUT_GPU();
  constexpr std::int64_t kRows = 30;
  for (const std::int64_t width : {1, 7, 50, 64, 1024}) {
    Tensor table = test::random_tensor<float>({kRows, width}, 1);
    for (std::int64_t c = 0; c < width; ++c) {
      table.view<float, 2>()(3, c) = 0.0f;
      table.view<float, 2>()(4, c) *= 1e-20f;
      table.view<float, 2>()(5, c) *= 1e20f;
    }
    const std::vector<std::int64_t> ids = {3, 29, 5, 4, 4, 0};
    std::vector<Half> gathered, copied;
    for (const Device device : test::devices()) {
      const Context ctx({.device = device, .threads = 2});
      const Tensor placed = test::place(ctx, table), rows = test::place(ctx, test::tensor_of(ids));
      const auto count = static_cast<std::int64_t>(ids.size());
      Tensor values(DType::kF16, {count, width}, device), scale(DType::kF32, {count}, device);
      const HalfRowsOut out = {values.view<f16, 2>(), scale.view<float, 1>()};
      gather_half_rows(ctx, placed.view<float, 2>(), rows.view<std::int64_t, 1>(), out);
      gathered.push_back(fetch(ctx, values, scale));

      // Through a whole table in f16.
      Tensor all(DType::kF16, {kRows, width}, device), all_scale(DType::kF32, {kRows}, device);
      const HalfRowsOut whole = {all.view<f16, 2>(), all_scale.view<float, 1>()};
      const Tensor distinct =
          test::place(ctx, test::tensor_of(std::vector<std::int64_t>{3, 29, 5, 4, 0}));
      refresh_half_rows(ctx, placed.view<float, 2>(), distinct.view<std::int64_t, 1>(), whole);
      gather_half_rows(ctx, whole, rows.view<std::int64_t, 1>(), out);
      copied.push_back(fetch(ctx, values, scale));
    }
    EXPECT_TRUE(gathered[0] == gathered[1]) << "width " << width;
    EXPECT_TRUE(copied[0] == gathered[0]) << "width " << width;
    EXPECT_TRUE(copied[1] == gathered[0]) << "width " << width;
  }
}

}  // namespace
}  // namespace turbogr::ops
