// Tables about items and users as the rest of prepare wants them: files of delimited text. Parquet
// and tables in memory are written as such, so that a store has the bytes it would have from CSV.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "turbogr/data/features/table_reader.h"
#include "turbogr/data/prepare.h"

namespace turbogr::data {

struct TableFiles {
  std::vector<TableFile> users;
  std::vector<TableFile> items;

  const std::vector<TableFile>& of(FeatureOwner owner) const {
    return owner == FeatureOwner::kItem ? items : users;
  }
};

// Those that `options` names, in that order; what is written lies in `folder`. Adds columns that
// were left out to `remarks`.
TableFiles table_files(const PrepareOptions& options, const std::filesystem::path& folder,
                       std::vector<std::string>& remarks);

}  // namespace turbogr::data
