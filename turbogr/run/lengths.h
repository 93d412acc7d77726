// lengths.json of a run folder: how long the sequences are that it trains on.
//
//   write_lengths("runs/demo/lengths.json", length_histogram(lengths));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turbogr::run {

struct LengthHistogram {
  struct Bin {
    std::int64_t from;  // both ends belong to it
    std::int64_t to;
    std::int64_t count;
  };

  std::int64_t count = 0;
  double mean = 0.0;
  std::int64_t p50 = 0;
  std::int64_t p90 = 0;
  std::int64_t p99 = 0;
  std::int64_t max = 0;
  std::vector<Bin> bins;  // from the shortest to the longest; no gaps
};

// At most `max_bins` bins: of equal width, or of equal ratio when lengths span more than a factor
// of 20.
LengthHistogram length_histogram(std::vector<std::int64_t> lengths, int max_bins = 40);

void write_lengths(const std::string& path, const LengthHistogram& histogram);
LengthHistogram read_lengths(const std::string& path);  // throws on a file of another shape

}  // namespace turbogr::run
