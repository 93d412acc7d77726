#include "turbogr/embedding/half_table.h"

#include <algorithm>
#include <numeric>

#include "turbogr/core/device_memory.h"

namespace turbogr::embedding {

void HalfTable::assign(const Context& ctx, Rows<const float> table) {
  constexpr std::int64_t kPiece = 1 << 16;
  Tensor ids(DType::kI64, {kPiece}, ctx.device() == Device::kCuda ? Device::kPinned : Device::kCpu);
  auto* first_id = reinterpret_cast<std::int64_t*>(ids.data());
  for (std::int64_t first = 0; first < table.rows; first += kPiece) {
    const std::int64_t count = std::min(kPiece, table.rows - first);
    std::iota(first_id, first_id + count, first);
    refresh(ctx, table, {first_id, {count}});
    synchronize(ctx);  // the device has read the ids
  }
}

}  // namespace turbogr::embedding
