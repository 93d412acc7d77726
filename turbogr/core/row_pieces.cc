#include "turbogr/core/row_pieces.h"

#include <algorithm>

#include "turbogr/core/device_memory.h"

namespace turbogr {

TableMemory memory_of(Tensor& table) {
  const std::int64_t rows = table.shape()[0];
  const auto bytes = static_cast<std::int64_t>(table.bytes());
  return {table.data(), table.device(), rows, rows == 0 ? 0 : bytes / rows};
}

void for_each_piece(const Context& ctx, const TableMemory& table, PieceUse use,
                    const std::function<void(const RowPiece&)>& body, std::int64_t piece_bytes) {
  const std::int64_t most =
      std::clamp<std::int64_t>(piece_bytes / std::max<std::int64_t>(table.row_bytes, 1), 1,
                               std::max<std::int64_t>(table.rows, 1));
  const bool there = table.device == Device::kCuda;
  Tensor staged;
  if (there) staged = Tensor(DType::kU8, {most * table.row_bytes}, Device::kPinned);
  for (std::int64_t begin = 0; begin < table.rows; begin += most) {
    const std::int64_t end = std::min(begin + most, table.rows);
    std::byte* own = table.data + begin * table.row_bytes;
    const auto bytes = static_cast<std::size_t>((end - begin) * table.row_bytes);
    if (there && use == PieceUse::kUpdate) {
      copy_bytes(ctx, staged.data(), own, bytes);
      synchronize(ctx);
    }
    body({begin, end, there ? staged.data() : own});
    if (!there) continue;
    copy_bytes(ctx, own, staged.data(), bytes);
    synchronize(ctx);  // the buffer is filled again
  }
}

}  // namespace turbogr
