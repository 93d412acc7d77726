#include "turbogr/core/check.h"

#include <cstdio>
#include <cstdlib>

namespace turbogr::detail {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: bug in turbogr: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace turbogr::detail
