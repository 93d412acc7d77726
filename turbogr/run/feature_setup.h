// What [features.X] and [tables.X] of a Config mean, whatever the task: which ids a feature reads
// of a store, and tables that hold their rows. The one place where these keys get their meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/data/samples/sample_features.h"
#include "turbogr/data/store.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

// Throws on a source that the store does not have and on keys that make no sense together. Of a
// cross the table's rows are set when those are known.
data::SampleFeature sample_feature(const Config& config, const FeatureConfig& feature,
                                   const data::Store& store);
// How the model reads the feature's rows.
model::Feature model_feature(const FeatureConfig& feature, const data::SampleFeature& reads,
                             std::size_t table);

// Tables as the features fill them; `rows` of a cross's table must be named.
class FeatureTables {
 public:
  // All rows are as wide as the key `width_key` says. `scale`: of fresh rows of tables that do not
  // say init; 0: by 1 / sqrt(rows).
  FeatureTables(const Config& config, std::int64_t width, std::string width_key, double scale = 0);

  // `needed` rows for the codes that the feature, one of the config's, reads. A cross needs none,
  // and fills what it gets.
  std::size_t add(const FeatureConfig& feature, std::int64_t needed);
  // After the last. Throws on tables that nobody reads.
  std::vector<embedding::TableOptions> finish() const;
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  const std::vector<std::int64_t>& named_rows() const { return named_rows_; }

 private:
  std::int64_t cut(std::int64_t named) const;
  ops::RowStart start_of(const TableConfig& table, std::int64_t rows) const;
  void check_known(const FeatureConfig& feature, const std::string& name,
                   const TableConfig* given) const;
  void check_shared(const FeatureConfig& feature, std::size_t table) const;

  const Config& config_;
  std::int64_t width_;
  std::string width_key_;
  double scale_;
  std::vector<std::string> names_;
  std::vector<const FeatureConfig*> firsts_;     // that fills the table
  std::vector<std::int64_t> rows_, named_rows_;  // named_rows: as in the config, before the cut
};

// Of a table in a checkpoint.
std::string saved_table_name(const std::string& table);

}  // namespace turbogr::run
