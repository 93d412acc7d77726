#include "turbogr/core/row_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace turbogr {
namespace {

TEST(RowPieces, CoverEveryRowOnceInPiecesThatFit) {
  const Context ctx({.threads = 1});
  for (const std::int64_t rows : {0, 1, 7, 8, 9}) {
    for (const std::int64_t piece_bytes : {1, 24, 63, 64, 1000}) {
      Tensor table(DType::kF32, {rows, 6});
      std::vector<std::int64_t> ends;
      for_each_piece(
          ctx, memory_of(table), PieceUse::kUpdate,
          [&](const RowPiece& piece) {
            EXPECT_EQ(piece.begin, ends.empty() ? 0 : ends.back());
            EXPECT_TRUE(piece.end == piece.begin + 1 ||
                        (piece.end - piece.begin) * 24 <= piece_bytes);
            ends.push_back(piece.end);
            for (std::int64_t i = 0; i < (piece.end - piece.begin) * 6; ++i) {
              reinterpret_cast<float*>(piece.data)[i] += static_cast<float>(piece.begin * 6 + i);
            }
          },
          piece_bytes);
      EXPECT_EQ(ends.empty() ? 0 : ends.back(), rows);
      EXPECT_GE(std::ssize(ends) * std::max<std::int64_t>(piece_bytes, 24), rows * 24);
      for (std::int64_t i = 0; i < rows * 6; ++i) {
        EXPECT_EQ((table.view<float, 2>().data[i]), static_cast<float>(i));
      }
    }
  }
}

TEST(RowPieces, OfNumbersARow) {
  Tensor moments(DType::kF32, {5});
  const TableMemory memory = memory_of(moments);
  EXPECT_EQ(memory.rows, 5);
  EXPECT_EQ(memory.row_bytes, 4);
}

}  // namespace
}  // namespace turbogr
