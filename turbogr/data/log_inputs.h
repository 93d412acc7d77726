// Which files `prepare` reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "turbogr/data/prepare.h"

namespace turbogr::data {

struct LogInputs {
  std::vector<std::filesystem::path> logs;  // KuaiRand's feature tables are among them
  std::vector<std::filesystem::path> item_tables;
};

// A folder stands for the files of the format in it, in order of their names; one of MovieLens for
// its ratings and its titles. Throws when there are none, or when two of them are the same file.
LogInputs log_inputs(const PrepareOptions& options);

std::int64_t total_bytes(const std::vector<std::filesystem::path>& files);  // -1 when unknown

}  // namespace turbogr::data
