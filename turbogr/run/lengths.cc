#include "turbogr/run/lengths.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/output_file.h"

namespace turbogr::run {

LengthHistogram length_histogram(std::vector<std::int64_t> lengths, int max_bins) {
  TGR_CHECK(max_bins >= 1, "a histogram of ", max_bins, " bins was asked for");
  LengthHistogram histogram;
  if (lengths.empty()) return histogram;
  std::sort(lengths.begin(), lengths.end());
  const std::int64_t low = lengths.front();
  const std::int64_t high = lengths.back();
  TGR_CHECK(low >= 0, "a sequence of length ", low, " cannot be");
  const auto quantile = [&](double share) {
    const auto last = static_cast<double>(lengths.size() - 1);
    return lengths[static_cast<std::size_t>(std::llround(share * last))];
  };
  histogram.count = static_cast<std::int64_t>(lengths.size());
  histogram.mean =
      std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  histogram.p50 = quantile(0.5);
  histogram.p90 = quantile(0.9);
  histogram.p99 = quantile(0.99);
  histogram.max = high;

  const bool by_ratio = high > 20 * std::max<std::int64_t>(low, 1);
  const auto first = static_cast<double>(std::max<std::int64_t>(low, 1));
  const double ratio = std::pow((static_cast<double>(high) + 1.0) / first, 1.0 / max_bins);
  const std::int64_t width = (high - low) / max_bins + 1;
  std::int64_t from = low;
  auto next = lengths.begin();
  for (int edge = 1; from <= high; ++edge) {
    const std::int64_t end = by_ratio ? std::llround(first * std::pow(ratio, edge)) : from + width;
    if (end <= from) continue;  // ratios near 1 round to the same length
    const auto stop = std::lower_bound(next, lengths.end(), end);
    histogram.bins.push_back({from, std::min(end - 1, high), stop - next});
    next = stop;
    from = end;
  }
  return histogram;
}

void write_lengths(const std::string& path, const LengthHistogram& histogram) {
  nlohmann::ordered_json file = {{"count", histogram.count}, {"mean", histogram.mean},
                                 {"p50", histogram.p50},     {"p90", histogram.p90},
                                 {"p99", histogram.p99},     {"max", histogram.max}};
  file["bins"] = nlohmann::ordered_json::array();
  for (const LengthHistogram::Bin& bin : histogram.bins) {
    file["bins"].push_back({bin.from, bin.to, bin.count});
  }
  replace_file(path, file.dump() + "\n");
}

LengthHistogram read_lengths(const std::string& path) {
  try {
    const nlohmann::json file = parse_json(read_file(path));
    LengthHistogram histogram;
    histogram.count = whole_number<std::int64_t>(file.at("count"));
    histogram.mean = file.at("mean");
    histogram.p50 = whole_number<std::int64_t>(file.at("p50"));
    histogram.p90 = whole_number<std::int64_t>(file.at("p90"));
    histogram.p99 = whole_number<std::int64_t>(file.at("p99"));
    histogram.max = whole_number<std::int64_t>(file.at("max"));
    for (const nlohmann::json& bin : file.at("bins")) {
      histogram.bins.push_back({whole_number<std::int64_t>(bin.at(0)),
                                whole_number<std::int64_t>(bin.at(1)),
                                whole_number<std::int64_t>(bin.at(2))});
    }
    return histogram;
  } catch (const nlohmann::json::exception&) {
    detail::throw_error("'", path,
                        "' is not a length histogram as a run writes it (count, mean, p50, p90, "
                        "p99, max, bins); remove it, or restore it");
  }
}

}  // namespace turbogr::run
