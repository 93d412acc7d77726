#include "turbogr/core/tensor.h"

#include <limits>
#include <sstream>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"

namespace turbogr {

// In device_memory.cc: null when there is not enough.
namespace detail {
std::byte* allocate_bytes(Device device, std::size_t bytes);
void free_bytes(Device device, std::byte* data) noexcept;
void clear_bytes(Device device, std::byte* data, std::size_t bytes);
}  // namespace detail

Tensor::Tensor(DType dtype, std::vector<std::int64_t> shape, Device device)
    : dtype_(dtype), device_(device), shape_(std::move(shape)), size_(1) {
  TGR_CHECK(device != Device::kCuda || TGR_WITH_CUDA, "a tensor on ", name_of(device),
            " was asked for; this build has no CUDA: set device = \"cpu\"");
  for (const std::int64_t dimension : shape_) {
    TGR_CHECK(dimension >= 0, "a tensor of shape ", shape_text(shape_),
              " was asked for; dimensions must not be negative");
    TGR_CHECK(!__builtin_mul_overflow(size_, dimension, &size_) && size_ < (std::int64_t{1} << 58),
              "a tensor of shape ", shape_text(shape_), " has more elements than memory can hold");
  }
  const std::size_t rounded = (bytes() + 63) / 64 * 64;
  const bool only_planned = device != Device::kCuda && plans_only();
  if (device == Device::kCuda || only_planned || detail::host_has(rounded)) {
    data_ = {detail::allocate_bytes(device, rounded == 0 ? 64 : rounded),
             detail::FreeBytes{device}};
  }
  if (data_ == nullptr) {
    std::ostringstream text;
    text << "out of memory on " << name_of(device) << ": a " << name_of(dtype)
         << " tensor of shape " << shape_text(shape_) << " needs " << bytes() << " bytes";
    const std::size_t free =
        device == Device::kCuda ? device_memory().free : available_host_memory();
    if (free != std::numeric_limits<std::size_t>::max()) text << ", and " << free << " are free";
    throw OutOfMemory(text.str());
  }
  if (!only_planned) detail::clear_bytes(device, data_.get(), bytes());
}

void detail::FreeBytes::operator()(std::byte* data) const noexcept { free_bytes(device, data); }

void Tensor::check_view(DType wanted, int rank) const {
  TGR_CHECK(wanted == dtype_ && static_cast<std::size_t>(rank) == shape_.size(), "a ",
            name_of(dtype_), " tensor of shape ", shape_text(shape_), " was viewed as ",
            name_of(wanted), " of rank ", rank);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

}  // namespace turbogr
