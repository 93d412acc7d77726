// Matrices past 2^32 elements that take next to no memory: few rows, each a long way from the one
// before, in addresses that the system fills with zeros when they are touched. An operator that
// computes a row's place in 32 bits reads zeros, or writes where nobody looks.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr::test {

// Addresses of zeros; pages of 4 KiB come with the first write.
class LazyBytes {
 public:
  explicit LazyBytes(std::size_t bytes) : bytes_(bytes) {
    void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TGR_CHECK(found != MAP_FAILED, "no ", bytes, " bytes of addresses");
    data_ = static_cast<std::byte*>(found);
    madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  ~LazyBytes() { munmap(data_, bytes_); }
  LazyBytes(const LazyBytes&) = delete;
  LazyBytes& operator=(const LazyBytes&) = delete;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// Whether the system gives so many addresses (it may be told not to promise what it has not).
inline bool has_addresses(std::size_t bytes) {
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return false;
  munmap(found, bytes);
  return true;
}

enum class Apart : std::uint8_t { kNear, kFar };

// A GPU has no such addresses: there the rows take memory, so they lie closer.
inline constexpr std::int64_t kFarRows = 300;
inline std::int64_t far_stride(const Context& ctx) {
  return (std::int64_t{1} << (ctx.device() == Device::kCpu ? 24 : 23)) + 64;
}
static_assert((kFarRows - 1) << 23 > std::int64_t{1} << 31);

// A matrix with rows far apart, or near each other (with a gap, too): what an operator makes of
// both must be the same.
template <class T>
class ApartRows {
 public:
  ApartRows(const Context& ctx, Apart apart, std::int64_t rows, std::int64_t cols)
      : ctx_(ctx),
        rows_(rows),
        cols_(cols),
        stride_(apart == Apart::kFar ? far_stride(ctx) : cols + 8) {
    if (ctx.device() == Device::kCpu) {
      lazy_ = std::make_unique<LazyBytes>(static_cast<std::size_t>(rows * stride_) * sizeof(T));
    } else {
      memory_ = Tensor(dtype_of<T>(), {rows, stride_}, ctx.device());
    }
  }
  ApartRows(const Context& ctx, Apart apart, const Tensor& values)
      : ApartRows(ctx, apart, values.shape()[0], values.shape()[1]) {
    Tensor placed(values.dtype(), values.shape(), ctx.device());
    copy_tensor(ctx, placed, values);
    for (std::int64_t r = 0; r < rows_; ++r) {
      copy_bytes(ctx, rows().row(r), placed.data() + r * row_bytes(), row_bytes());
    }
    synchronize(ctx);
  }

  Rows<T> rows() const {
    T* data = lazy_ ? lazy_->as<T>() : reinterpret_cast<T*>(const_cast<std::byte*>(memory_.data()));
    return {data, rows_, cols_, stride_};
  }
  Tensor values() const {
    Tensor values(dtype_of<T>(), {rows_, cols_}, ctx_.device());
    for (std::int64_t r = 0; r < rows_; ++r) {
      copy_bytes(ctx_, values.data() + r * row_bytes(), rows().row(r), row_bytes());
    }
    return to_host(ctx_, values);
  }

 private:
  std::size_t row_bytes() const { return static_cast<std::size_t>(cols_) * sizeof(T); }

  const Context& ctx_;
  std::int64_t rows_, cols_, stride_;
  std::unique_ptr<LazyBytes> lazy_;  // on a CPU
  Tensor memory_;                    // on a GPU
};

}  // namespace turbogr::test
