#include "bench/op_case.h"

#include <algorithm>
#include <numeric>

namespace turbogr::bench {

std::int64_t OpProblem::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t OpProblem::longest() const {
  return *std::max_element(lengths.begin(), lengths.end());
}

std::int64_t OpProblem::padded_tokens() const {
  return static_cast<std::int64_t>(lengths.size()) * longest();
}

std::vector<std::int64_t> OpProblem::offsets() const {
  std::vector<std::int64_t> offsets = {0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

}  // namespace turbogr::bench
