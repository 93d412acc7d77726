// manifest.json of a checkpoint: what the writer and the reader agree on.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "turbogr/core/crc32c.h"

namespace turbogr::checkpoint {

inline constexpr const char* kCheckpointFormat = "turbogr checkpoint";
// 1: tables are tensors like others. 2: tables have files of their own, one a rank.
inline constexpr int kCheckpointVersion = 2;
// A file in a folder of checkpoints until the first one is there.
inline constexpr const char* kNoneYet = "none_yet";

// "items-00001-of-00004", the file of a table's part without its ending.
inline std::string part_name(const std::string& table, int part, int parts) {
  return fmt::format("{}-{:05}-of-{:05}", table, part + 1, parts);
}

inline std::string sum_text(std::uint32_t sum) { return fmt::format("{:08x}", sum); }

inline std::string sum_text(const std::string& content) {
  return sum_text(crc32c(0, content.data(), content.size()));
}

// Of all fields but "crc32c" itself. Keys are sorted, so the text is the same after a round trip.
inline std::string manifest_sum(nlohmann::json manifest) {
  manifest.erase("crc32c");
  return sum_text(manifest.dump());
}

}  // namespace turbogr::checkpoint
