// Tables of published data sets, told by the names of their files: KuaiRand's and MovieLens'.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr::data {

// Columns of a table that comes without a header (movies.dat, users.dat, u.user); empty when the
// file is none of these.
std::vector<std::string> columns_without_header(const std::filesystem::path& file);

// What of a table is worth keeping, each as in --item-features, and whether or not this edition has
// it; empty for tables nobody knows.
std::vector<std::string> usual_features(const std::filesystem::path& file);

}  // namespace turbogr::data
