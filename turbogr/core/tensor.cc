#include "turbogr/core/tensor.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace turbogr {

Tensor::Tensor(DType dtype, std::vector<std::int64_t> shape, Device device)
    : dtype_(dtype), device_(device), shape_(std::move(shape)), size_(1) {
  TGR_CHECK(device == Device::kCpu, "a tensor on ", name_of(device),
            " was asked for; this build has no CUDA: set device = \"cpu\"");
  for (const std::int64_t dimension : shape_) {
    TGR_CHECK(dimension >= 0, "a tensor of shape ", shape_text(shape_),
              " was asked for; dimensions must not be negative");
    TGR_CHECK(!__builtin_mul_overflow(size_, dimension, &size_) && size_ < (std::int64_t{1} << 58),
              "a tensor of shape ", shape_text(shape_), " has more elements than memory can hold");
  }
  const std::size_t rounded = (bytes() + 63) / 64 * 64;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded == 0 ? 64 : rounded)));
  TGR_CHECK(data_ != nullptr, "out of memory: a ", name_of(dtype), " tensor of shape ",
            shape_text(shape_), " needs ", bytes(), " bytes");
  std::memset(data_.get(), 0, bytes());
}

void Tensor::Free::operator()(std::byte* data) const noexcept { std::free(data); }

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
