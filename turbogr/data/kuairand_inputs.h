// KuaiRand's published files by their names: logs and feature tables, as delimited text or as the
// same in Parquet.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "turbogr/data/prepare.h"

namespace turbogr::data {

bool is_kuairand_log(const std::filesystem::path& path);
bool is_kuairand_table(const std::filesystem::path& path);

// Those of a folder, in order of their names. Throws when there are none, or the same file in two
// forms.
std::vector<std::filesystem::path> kuairand_files(const std::filesystem::path& folder);

// The same work in options that speak of Parquet where the logs are that; tables in Parquet become
// tables given, before the others. Logs of text stay KuaiRand's.
PrepareOptions kuairand_options(PrepareOptions options, std::vector<std::string>& remarks);

}  // namespace turbogr::data
