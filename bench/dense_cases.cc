#include "bench/op_case.h"

namespace turbogr::bench {

std::vector<OpFamily> dense_families() { return {}; }

}  // namespace turbogr::bench
