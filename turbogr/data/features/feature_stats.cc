#include "turbogr/data/features/feature_stats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"

namespace turbogr::data {
namespace {

constexpr std::size_t kMostShown = 5;

std::vector<ValueCount> most_frequent(const FeatureColumn& column) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(column.about.values) + 1);
  for (const std::int32_t code : column.codes) {
    TGR_CHECK(code >= 0 && code <= column.about.values, name_of(column.about.owner), " feature '",
              column.about.name, "' has code ", code, " of ", column.about.values,
              " values; the store is damaged, run `turbogr data verify`");
    ++counts[static_cast<std::size_t>(code)];
  }
  std::vector<std::int32_t> codes;
  for (std::int64_t code = 1; code <= column.about.values; ++code) {
    if (counts[static_cast<std::size_t>(code)] > 0) {
      codes.push_back(static_cast<std::int32_t>(code));
    }
  }
  const auto count_of = [&](std::int32_t code) { return counts[static_cast<std::size_t>(code)]; };
  const std::size_t shown = std::min(kMostShown, codes.size());
  std::partial_sort(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(shown), codes.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return count_of(a) != count_of(b) ? count_of(a) > count_of(b) : a < b;
                    });
  std::vector<ValueCount> result;
  for (std::size_t i = 0; i < shown; ++i) {
    result.push_back({std::string(column.value(codes[i])), count_of(codes[i])});
  }
  return result;
}

std::string line_of(const FeatureStats& feature) {
  const std::string head =
      fmt::format("{:<6} {:<20} {:<9} {:>10} {:>8.2f} %  ", name_of(feature.about.owner),
                  escaped(feature.about.name), name_of(feature.about.kind),
                  feature.about.has_vocabulary() ? std::to_string(feature.about.values) : "",
                  100 * feature.missing_share());
  if (!feature.about.has_vocabulary()) {
    if (feature.rows == feature.about.missing) return head + "no numbers\n";
    return head +
           fmt::format("{:.6g} to {:.6g}, mean {:.6g}{}\n", feature.min, feature.max, feature.mean,
                       feature.about.unparsable > 0
                           ? fmt::format("; {} fields are no numbers", feature.about.unparsable)
                           : "");
  }
  std::vector<std::string> words;
  for (const ValueCount& value : feature.most_frequent) {
    words.push_back(fmt::format("{} {}", escaped(value.value.substr(0, 40)), value.count));
  }
  return head + fmt::format("{}\n", fmt::join(words, ", "));
}

}  // namespace

FeatureStats feature_stats_of(const FeatureColumn& column, std::int64_t rows) {
  FeatureStats stats;
  stats.about = column.about;
  stats.rows = rows;
  if (column.about.has_vocabulary()) {
    stats.most_frequent = most_frequent(column);
    return stats;
  }
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double sum = 0;
  std::int64_t count = 0;
  for (const float number : column.numbers) {
    if (std::isnan(number)) continue;
    least = std::min<double>(least, number);
    most = std::max<double>(most, number);
    sum += static_cast<double>(number);
    ++count;
  }
  if (count == 0) return stats;
  stats.min = least;
  stats.max = most;
  stats.mean = sum / static_cast<double>(count);
  return stats;
}

std::string to_text(const std::vector<FeatureStats>& features,
                    const std::vector<FeatureTable>& tables) {
  if (features.empty()) return "";
  std::string text = fmt::format("\n{:<6} {:<20} {:<9} {:>10} {:>10}  {}\n", "of", "feature",
                                 "kind", "values", "missing", "most frequent");
  for (const FeatureStats& feature : features) text += line_of(feature);
  for (const FeatureTable& table : tables) {
    const std::string_view owner = name_of(table.owner);
    text += fmt::format(
        "{} tables: {} rows, {} of {}s without events, {} repeated, {} unreadable; {} {}s have no "
        "row\n",
        owner, table.rows, table.without_events, owner, table.repeated, table.unreadable,
        table.without_row, owner);
  }
  return text;
}

}  // namespace turbogr::data
