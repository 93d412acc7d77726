// Where memory lives and operators run.
#pragma once

#include <cstdint>
#include <string_view>

namespace turbogr {

enum class Device : std::uint8_t {
  kCpu,
  kCuda,
  kPinned,  // host memory that the GPU copies from and to by itself; plain host memory without one
};

inline std::string_view name_of(Device device) {
  return device == Device::kCpu ? "cpu" : device == Device::kCuda ? "cuda" : "pinned";
}

}  // namespace turbogr
