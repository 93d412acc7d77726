// Reads a delimited file about items or users: which column holds their ids, and which the features
// that are asked for.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/bad_rows.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/features/feature.h"

namespace turbogr::data {

// Where a table lies as delimited text, and what people call it.
struct TableFile {
  std::filesystem::path path;
  std::string name;
  bool kept = true;  // goes along in the store
  // Written from columns with types (table_files.h): commas, quotes and a header.
  bool from_columns = false;
  std::vector<std::string> lists = {};  // which of those were lists
};

class TableReader {
 public:
  // Reads as far as the header. The id is the column with one of the owner's usual names, else the
  // first.
  TableReader(const TableFile& file, FeatureOwner owner,
              const std::vector<FeatureRequest>& requests);

  const std::string& name() const { return name_; }
  const std::vector<std::string>& column_names() const { return names_; }
  // One a request; -1: this table does not have it.
  const std::vector<int>& columns() const { return columns_; }
  // RecBole's (token, token_seq, float), or list; empty: none is known.
  std::string_view type_of(int column) const;
  // What a column holds in the first thousand rows, before any is read.
  std::vector<std::string> sample(int column);

  // Calls use(reader) for every row, or bad(reader, what is wrong) for one that cannot be used.
  template <class Use, class Bad>
  void for_each_row(Use&& use, Bad&& bad) {
    while (reader_.next()) {
      if (reader_.unclosed_quote()) {
        bad(reader_, BadRow::kOpenQuote);
      } else if (reader_.fields().size() != names_.size()) {
        bad(reader_, BadRow::kColumns);
      } else if (id().empty()) {
        bad(reader_, BadRow::kEmptyId);
      } else {
        use(reader_);
      }
    }
  }
  std::string_view id() const { return reader_.fields()[id_]; }  // of the row at hand
  const std::string& id_column() const { return names_[id_]; }

 private:
  std::string name_;
  Input input_;
  CsvReader reader_;
  CsvDialect dialect_;
  bool header_ = true;
  std::vector<std::string> names_;  // without a header those known of the file, or numbers from 1
  std::vector<std::string> types_;  // of all columns; empty when there are none
  std::size_t id_ = 0;
  std::vector<int> columns_;
};

// What is asked for, as parse_feature_requests; `auto` alone stands for what is usual of the tables
// of KuaiRand and MovieLens.
std::vector<FeatureRequest> feature_requests(const std::vector<std::string>& texts,
                                             FeatureOwner owner,
                                             const std::vector<TableFile>& tables);

// Before hours of work: that every feature has its column, and the rows are whole. What comes
// through a pipe can be read only once, and is not looked at. Adds rows left out to `remarks`.
void check_feature_tables(const std::vector<TableFile>& tables, FeatureOwner owner,
                          const std::vector<FeatureRequest>& requests, const BadRowPolicy& policy,
                          std::vector<std::string>& remarks);

// Throws when none of the tables has a feature that is asked for, saying what they have.
void check_features_found(const std::vector<const TableReader*>& tables, FeatureOwner owner,
                          const std::vector<FeatureRequest>& requests);

}  // namespace turbogr::data
