#pragma once

namespace turbogr {

const char* version();  // "0.1.0"
const char* commit();   // short hash of the source, or "unknown"

}  // namespace turbogr
