// A feature of a store in figures: how many values, how many rows without one, what occurs most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/features/feature_column.h"

namespace turbogr::data {

struct ValueCount {
  std::string value;
  std::int64_t count = 0;
};

struct FeatureStats {
  Feature about;
  std::int64_t rows = 0;                  // items, users or events
  std::vector<ValueCount> most_frequent;  // five at most, of equal counts the lower code first
  double min = 0, mean = 0, max = 0;      // of numbers that are there

  double missing_share() const {
    return rows > 0 ? static_cast<double>(about.missing) / static_cast<double>(rows) : 0;
  }
};

FeatureStats feature_stats_of(const FeatureColumn& column, std::int64_t rows);

// Lines for people, a heading first; empty when there are none.
std::string to_text(const std::vector<FeatureStats>& features,
                    const std::vector<FeatureTable>& tables);

}  // namespace turbogr::data
