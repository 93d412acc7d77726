#include "turbogr/core/workspace.h"

#include <algorithm>

namespace turbogr {

Workspace::Workspace(std::size_t capacity, Device device) : device_(device) { reserve(capacity); }

void Workspace::reserve(std::size_t capacity) {
  if (capacity <= capacity_) return;
  TGR_CHECK(!borrowed_, "workspace: ", capacity, " bytes wanted, ", capacity_,
            " were given; ask how many are needed first");
  TGR_CHECK(used_ == 0, "workspace: cannot grow to ", capacity, " bytes while ", used_,
            " are in use; reserve before the step starts");
  memory_ = Tensor(DType::kU8, {static_cast<std::int64_t>(capacity)}, device_);
  data_ = memory_.data();
  capacity_ = memory_.bytes();
}

std::byte* Workspace::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  TGR_CHECK(rounded <= capacity() - used_, "workspace: ", rounded, " bytes wanted, ",
            capacity() - used_, " of ", capacity(),
            " free; reserve the sum of the operators' *_workspace_bytes");
  std::byte* start = data_ + used_;
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return start;
}

}  // namespace turbogr
