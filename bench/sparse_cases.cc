#include "bench/op_case.h"

namespace turbogr::bench {

std::vector<OpFamily> sparse_families() { return {}; }

}  // namespace turbogr::bench
