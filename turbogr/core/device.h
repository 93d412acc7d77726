// Where memory lives and operators run.
#pragma once

#include <cstdint>
#include <string_view>

namespace turbogr {

enum class Device : std::uint8_t { kCpu, kCuda };

inline std::string_view name_of(Device device) { return device == Device::kCpu ? "cpu" : "cuda"; }

}  // namespace turbogr
