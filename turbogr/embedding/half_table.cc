#include "turbogr/embedding/half_table.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace turbogr::embedding {

void HalfTable::assign(const Context& ctx, Rows<const float> table) {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int64_t> ids;
  for (std::int64_t first = 0; first < table.rows; first += kPiece) {
    ids.resize(static_cast<std::size_t>(std::min(kPiece, table.rows - first)));
    std::iota(ids.begin(), ids.end(), first);
    refresh(ctx, table, {ids.data(), {static_cast<std::int64_t>(ids.size())}});
  }
}

}  // namespace turbogr::embedding
