// configs/dlrmv4.toml and dlrmv3.toml, inside the program: an installed one has no source tree
// beside it.
#pragma once

#include <string_view>

namespace turbogr::bench {

extern const std::string_view kDlrmv4Config, kDlrmv3Config;

}  // namespace turbogr::bench
