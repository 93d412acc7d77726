// A table's rows some megabytes at a time, in memory that the host can reach: the table's own, or a
// staging buffer for a GPU's, so that no second copy of the table is ever made.
//
//   for_each_piece(ctx, {data, device, rows, row_bytes}, PieceUse::kWrite,
//                  [&](const RowPiece& piece) { ... piece.data ... });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "turbogr/core/context.h"
#include "turbogr/core/device.h"
#include "turbogr/core/tensor.h"

namespace turbogr {

struct TableMemory {
  std::byte* data = nullptr;
  Device device = Device::kCpu;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
};
TableMemory memory_of(Tensor& table);  // the first dimension is the rows

struct RowPiece {
  std::int64_t begin, end;  // rows
  std::byte* data;          // of row `begin`; what is written there is the table's afterwards
};

enum class PieceUse : std::uint8_t {
  kWrite,   // all of a piece is written: what was there before is not brought
  kUpdate,  // it is read, and perhaps changed
};

inline constexpr std::int64_t kPieceBytes = 16 << 20;

// In order. Waits for a GPU after every piece.
void for_each_piece(const Context& ctx, const TableMemory& table, PieceUse use,
                    const std::function<void(const RowPiece&)>& body,
                    std::int64_t piece_bytes = kPieceBytes);

}  // namespace turbogr
