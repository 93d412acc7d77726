// The features of a config beside its items: their tables, and which of their rows a rank's share
// of a step reads. Of a store they are read as training does. Other data has none: there every
// item, user or event is taken to have one code of a column, drawn evenly; clocks and crosses, too.
//
//   const PlannedFeatures features(config, *histories);
//   features.read_window(window, items, rows);       // rows of all tables, numbered end to end
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/view.h"
#include "turbogr/data/windows.h"
#include "turbogr/plan/histories.h"
#include "turbogr/run/config.h"
#include "turbogr/run/retrieval_setup.h"

namespace turbogr::plan {

class PlannedFeatures {
 public:
  // The histories outlive it. Throws on features that the store does not have; without a store on
  // columns whose table does not say its rows.
  PlannedFeatures(const run::Config& config, const Histories& histories);
  PlannedFeatures(const PlannedFeatures&) = delete;  // its lists point into features_
  PlannedFeatures& operator=(const PlannedFeatures&) = delete;

  bool empty() const { return features_.empty(); }
  const eval::RetrievalFeatures& options() const { return features_; }
  const std::vector<std::int64_t>& table_rows() const { return table_rows_; }
  std::int64_t num_rows() const;
  bool of_items() const { return features_.encodes_items(); }  // read_items is asked for, too
  std::string text() const;                                    // for tables; empty without any

  // Adds what the events and the user of a window read; items: those of its inputs.
  void read_window(const data::Window& window, std::span<const std::int64_t> items,
                   std::vector<std::int64_t>& rows) const;
  // Adds what items read by themselves: each one that is a token or a candidate.
  void read_items(View<const std::int64_t, 1> items, std::vector<std::int64_t>& rows) const;

 private:
  struct Read {
    const data::SampleFeature* feature;
    std::int64_t first_row;  // of its table
    std::int64_t table_rows;
  };
  std::vector<Read> reads_of(const std::vector<eval::RetrievalFeature>& features) const;
  void read(std::span<const Read> reads, const data::EventPlace& place, std::int64_t position,
            std::vector<std::int64_t>& rows) const;

  const data::Store* store_;
  eval::RetrievalFeatures features_;
  std::vector<std::int64_t> table_rows_, first_rows_;
  std::vector<Read> items_, events_, prefix_;
};

}  // namespace turbogr::plan
