#include "turbogr/data/samples/cross_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/messages.h"

namespace turbogr::data {
namespace {

using test::message_of;

TEST(CrossHash, IsXxh64OfTheKeysBytes) {
  EXPECT_EQ(cross_hash(std::array<std::int64_t, 2>{1, 2}), 5411092459628516524u);
  EXPECT_EQ(cross_hash(std::array<std::int64_t, 2>{7, -1}), 11096564357680106758u);
  EXPECT_EQ(cross_hash(std::array<std::int64_t, 3>{123456789, 42, 23}), 7604746892742646701u);
}

TEST(CrossHash, OrderNumberAndSaltOfKeysMatter) {
  const std::array<std::int64_t, 2> there = {1, 2}, back = {2, 1};
  EXPECT_NE(cross_hash(there), cross_hash(back));
  EXPECT_NE(cross_hash(there), cross_hash(there, 1));
  EXPECT_NE(cross_hash(std::array<std::int64_t, 1>{1}),
            cross_hash(std::array<std::int64_t, 2>{1, 0}));
}

TEST(CrossHash, RowsAreInsideTheTable) {
  EXPECT_EQ(cross_row(std::array<std::int64_t, 2>{7, -1}, 1000), 758);
  EXPECT_EQ(cross_row(std::array<std::int64_t, 2>{7, -1}, 1), 0);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t row = cross_row(std::array<std::int64_t, 2>{i, -i}, 17);
    EXPECT_TRUE(row >= 0 && row < 17);
  }
}

TEST(CrossHash, SaysWhatIsWrong) {
  const std::vector<std::int64_t> none, four = {1, 2, 3, 4}, one = {1};
  EXPECT_EQ(message_of([&] { cross_hash(none); }), "a cross of 0 keys; it can have 1 to 3");
  EXPECT_EQ(message_of([&] { cross_hash(four); }), "a cross of 4 keys; it can have 1 to 3");
  EXPECT_EQ(message_of([&] { cross_row(one, 0); }),
            "a cross into a table of 0 rows; it needs at least 1");
}

}  // namespace
}  // namespace turbogr::data
