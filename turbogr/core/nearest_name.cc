#include "turbogr/core/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace turbogr {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string nearest;
  // More than every other letter wrong is another word.
  std::size_t least = (name.size() + 3) / 2;
  for (const std::string& candidate : known) {
    const std::size_t edits = edit_distance(name, candidate);
    if (edits >= least) continue;
    least = edits;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace turbogr
