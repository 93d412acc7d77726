// What a file is when it is not delimited text, told by its first bytes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace turbogr::data {

// "a Parquet file", "JSON", "a zip archive", ..., "a binary file"; empty for what may be text.
std::string_view kind_of_other_file(std::string_view first_bytes);

// Whether these are columns for the Parquet library: a Parquet file, or a folder, since delimited
// text comes as files here.
bool is_parquet(const std::filesystem::path& path);

// Throws unless the file may be delimited text, saying what it is and what to do.
void check_delimited_text(std::string_view first_bytes, const std::string& name);

}  // namespace turbogr::data
