// Memory that was planned, by where it is: in the GPU's memory, or in the host's (on a CPU all of
// it).
#pragma once

#include <cstddef>

#include "turbogr/core/device.h"
#include "turbogr/core/tensor.h"

namespace turbogr {

struct PlannedBytes {
  std::size_t gpu = 0;
  std::size_t host = 0;

  void add(Device device, std::size_t bytes) { (device == Device::kCuda ? gpu : host) += bytes; }
  void add(const Tensor& tensor) { add(tensor.device(), tensor.bytes()); }
  PlannedBytes& operator+=(const PlannedBytes& other) {
    gpu += other.gpu;
    host += other.host;
    return *this;
  }
  // Where a device's computing has its memory.
  std::size_t on(Device device) const { return device == Device::kCuda ? gpu : host; }
};

}  // namespace turbogr
