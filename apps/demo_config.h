// configs/demo.toml, inside the program: an installed one has no source tree beside it.
#pragma once

#include <string_view>

namespace turbogr::apps {

extern const std::string_view kDemoConfig;

}  // namespace turbogr::apps
