// Features of items and users, from tables about them to columns of a store under work, in bounded
// memory: rows get the index of their item or user, are sorted by it out of core, and the last row
// of each id wins. Values are numbered by first appearance in the tables, so that the same tables
// give the same codes whatever the log.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "turbogr/data/features/table_reader.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::data {

// Temporary files go into `folder`. Adds to `remarks` what a person should know. The ids of the
// owner's side must be written already.
void write_table_features(ThreadPool& pool, StoreWriter& writer, FeatureOwner owner,
                          const std::vector<TableFile>& tables,
                          const std::vector<FeatureRequest>& requests, std::size_t memory_bytes,
                          const std::filesystem::path& folder, std::vector<std::string>& remarks);

}  // namespace turbogr::data
