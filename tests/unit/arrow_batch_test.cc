#include "turbogr/data/arrow/arrow_batch.h"

#include <gtest/gtest.h>

#include <string>

#include "turbogr/data/arrow/arrow_column.h"

namespace turbogr::data {
namespace {

TEST(ArrowBatch, HandsOverWhatWasAddedAndBeginsAgain) {
  ArrowBatch batch({{"user", ArrowBatch::Type::kText},
                    {"item", ArrowBatch::Type::kInt64},
                    {"score", ArrowBatch::Type::kFloat32}});
  ArrowSchema schema = {};
  batch.describe(&schema);
  ASSERT_EQ(schema.n_children, 3);
  EXPECT_STREQ(schema.children[0]->name, "user");
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(batch.rows(), 0);
    for (const char* user : {"ann", "", "a name of more than sixteen bytes"}) {
      batch.add(0, std::string_view(user));
      batch.add(1, std::int64_t{round});
      batch.add(2, 0.5F);
    }
    EXPECT_EQ(batch.rows(), 3);
    ArrowArray array = {};
    batch.hand_over(&array);
    ASSERT_EQ(array.length, 3);
    std::string scratch;
    for (int column = 0; column < 3; ++column) {
      ArrowColumn values(*schema.children[column], "here");
      values.bind(*array.children[column], array.offset);
      EXPECT_EQ(values.text(2, scratch), column == 0   ? "a name of more than sixteen bytes"
                                         : column == 1 ? std::to_string(round)
                                                       : "0.5");
    }
    array.release(&array);
    EXPECT_EQ(array.release, nullptr);
  }
  schema.release(&schema);
  EXPECT_EQ(schema.release, nullptr);
}

TEST(ArrowBatch, HasNarrowIntegersAndMissingOnes) {
  ArrowBatch batch({{"wide", ArrowBatch::Type::kUint32},
                    {"small", ArrowBatch::Type::kUint16, 1, /*optional=*/true},
                    {"tiny", ArrowBatch::Type::kUint8}});
  ArrowSchema schema = {};
  batch.describe(&schema);
  EXPECT_STREQ(schema.children[0]->format, "I");
  EXPECT_STREQ(schema.children[1]->format, "S");
  EXPECT_STREQ(schema.children[2]->format, "C");
  EXPECT_EQ(schema.children[0]->flags, 0);
  EXPECT_EQ(schema.children[1]->flags, 2);  // nullable
  for (std::int64_t row = 0; row < 20; ++row) {
    batch.add(0, 4'000'000'000 + row);
    if (row % 7 == 3) {
      batch.add_missing(1);
    } else {
      batch.add(1, 60'000 + row);
    }
    batch.add(2, 200 + row);
  }
  EXPECT_EQ(batch.rows(), 20);
  ArrowArray array = {};
  batch.hand_over(&array);
  EXPECT_EQ(array.children[1]->null_count, 3);
  std::string scratch;
  for (int column = 0; column < 3; ++column) {
    ArrowColumn values(*schema.children[column], "here");
    values.bind(*array.children[column], array.offset);
    for (std::int64_t row = 0; row < 20; ++row) {
      const std::int64_t base = column == 0 ? 4'000'000'000 : column == 1 ? 60'000 : 200;
      EXPECT_EQ(values.text(row, scratch),
                column == 1 && row % 7 == 3 ? "" : std::to_string(base + row));
    }
  }
  array.release(&array);
  schema.release(&schema);
}

}  // namespace
}  // namespace turbogr::data
