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

}  // namespace
}  // namespace turbogr::data
