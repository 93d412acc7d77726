// Which files `prepare` reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "turbogr/data/prepare.h"

namespace turbogr::data {

struct LogInputs {
  std::vector<std::filesystem::path> logs;  // KuaiRand's feature tables are among them
  std::vector<std::filesystem::path> user_tables;
  std::vector<std::filesystem::path> item_tables;
  std::vector<std::string> remarks;  // what of a folder was left alone
};

// A folder stands for the files in it, in order of their names: KuaiRand's logs and feature tables;
// MovieLens' ratings, titles and users; RecBole's .inter, .item and .user; else all that are named
// like delimited text. Throws when there are none, or when two of them are the same file.
LogInputs log_inputs(const PrepareOptions& options);

// Those of a shard, of files in the order they would be read. Throws when that leaves none.
std::vector<std::filesystem::path> files_of_shard(std::vector<std::filesystem::path> files,
                                                  const PrepareOptions& options);

std::int64_t total_bytes(const std::vector<std::filesystem::path>& files);  // -1 when unknown

}  // namespace turbogr::data
