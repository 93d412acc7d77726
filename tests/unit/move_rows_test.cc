#include "turbogr/ops/rows/move_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::message_of;
using test::random_tensor;

template <class From, class To, class Index>
void expect_moved(int threads) {
  const Context ctx({.threads = threads});
  constexpr std::int64_t kRows = 700, kWidth = 21, kUnit = 7;
  const Tensor table = random_tensor<From>({kRows, kWidth}, 1);
  // A message that also has rows of another width between these: kept as they are.
  std::vector<Index> from;
  std::vector<std::int32_t> to;
  std::int64_t units = 0;
  for (std::int64_t i = 0; i < 600; ++i) {
    from.push_back(static_cast<Index>(i * 131 % kRows));
    to.push_back(static_cast<std::int32_t>(units));
    units += kWidth / kUnit + i % 2;
  }
  const auto message_size = static_cast<std::size_t>(units * kUnit);
  std::vector<To> message(message_size, convert<To>(7.0f)), wanted = message;
  for (std::size_t i = 0; i < from.size(); ++i) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      wanted[static_cast<std::size_t>(to[i] * kUnit + c)] =
          convert<To>(table.view<From, 2>()(static_cast<std::int64_t>(from[i]), c));
    }
  }
  const auto count = std::ssize(from);
  move_rows<From, To, Index>(ctx, table.view<From, 2>(), {from.data(), {count}},
                             Rows<To>(message.data(), units, kWidth, kUnit), {to.data(), {count}});
  EXPECT_EQ(std::memcmp(message.data(), wanted.data(), message_size * sizeof(To)), 0);
}

TEST(MoveRows, ConvertsAndPlacesRowsAmongOthers) {
  for (const int threads : {1, 3}) {
    expect_moved<float, float, std::int64_t>(threads);
    expect_moved<float, bf16, std::int32_t>(threads);
    expect_moved<float, f16, std::int64_t>(threads);
    expect_moved<bf16, float, std::int32_t>(threads);
    expect_moved<bf16, bf16, std::int32_t>(threads);
    expect_moved<bf16, f16, std::int64_t>(threads);
    expect_moved<f16, float, std::int32_t>(threads);
    expect_moved<f16, bf16, std::int32_t>(threads);
    expect_moved<f16, f16, std::int64_t>(threads);
  }
}

TEST(MoveRows, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  std::vector<float> from(8), to(8);
  const std::vector<std::int32_t> first = {0, 2}, second = {1, -1}, short_list = {1};
  const auto move = [&](const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b,
                        std::int64_t width) {
    return message_of([&] {
      move_rows<float, float>(ctx, Rows<const float>(from.data(), 2, 4, 4),
                              {a.data(), {std::ssize(a)}}, Rows<float>(to.data(), 2, width, 4),
                              {b.data(), {std::ssize(b)}});
    });
  };
  EXPECT_NE(move(first, first, 4).find("from_place 2 at position 1 for 2 rows"), std::string::npos);
  EXPECT_NE(move({0, 1}, second, 4).find("to_place -1 at position 1"), std::string::npos);
  EXPECT_NE(move({0, 1}, short_list, 4).find("to_places has 1 elements; wanted 2"),
            std::string::npos);
  EXPECT_NE(move({0, 1}, {0, 1}, 3).find("rows of 4 columns to rows of 3"), std::string::npos);
}

}  // namespace
}  // namespace turbogr::ops
