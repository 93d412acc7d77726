#include "bench/op_case.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

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

OpProblem OpProblem::first_tokens(std::int64_t count) const {
  OpProblem cut = *this;
  cut.lengths.clear();
  for (const std::int64_t length : lengths) {
    if (count == 0) break;
    cut.lengths.push_back(std::min(length, count));
    count -= cut.lengths.back();
  }
  return cut;
}

std::function<double()> computed_once(std::function<double()> error) {
  return [error = std::move(error), known = std::make_shared<std::optional<double>>()] {
    if (!known->has_value()) *known = error();
    return known->value();
  };
}

std::vector<OpFamily> all_families() {
  std::vector<OpFamily> families;
  for (auto& some : {attention_families(), dense_families(), norm_families(), softmax_families(),
                     sparse_families()}) {
    families.insert(families.end(), some.begin(), some.end());
  }
  return families;
}

}  // namespace turbogr::bench
