// manifest.json of a sequence store: what the folder holds, in words a person can read and a
// program can check. It names no dates, paths or settings: the same input gives the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/features/feature.h"

namespace turbogr::data {

// 2 has features. A store without any is written as version 1, which older programs read, too.
inline constexpr int kStoreVersion = 2;

enum class TimeUnit : std::uint8_t { kNone, kSeconds, kMilliseconds };  // kNone: order only
enum class IdKind : std::uint8_t { kRange, kInt64, kString };  // kRange: the id is the index

std::string_view name_of(TimeUnit unit);  // none, s, ms
std::string_view name_of(IdKind kind);    // range, int64, string

// One file of the store.
struct FileEntry {
  std::string name;  // of the column or side table
  std::string file;  // plain file name inside the folder
  std::string type;  // int64, int32, uint32, uint16, float32, bytes
  std::int64_t bytes = 0;
  std::string checksum;  // XXH64
};

struct SideTable {
  std::string key;  // user or item: whose id its first column holds
  FileEntry file;
};

struct Manifest {
  std::int64_t users = 0;
  std::int64_t items = 0;
  std::int64_t events = 0;
  TimeUnit time_unit = TimeUnit::kNone;
  IdKind user_ids = IdKind::kRange;
  IdKind item_ids = IdKind::kRange;
  std::vector<std::string> signals;  // bit 0 first
  std::vector<std::string> numbers;
  std::vector<FileEntry> columns;
  std::vector<SideTable> side_tables;
  std::vector<Feature> features;
  std::vector<FeatureTable> feature_tables;  // one an owner at most; events need none
  std::int64_t items_without_events = 0;     // that tables alone speak of

  std::int64_t rows_of(FeatureOwner owner) const;  // items, users or events

  // Null when the store has no such column.
  const FileEntry* column(std::string_view name) const;

  std::string to_json() const;
  // Throws, naming `path`, on anything that is not a whole manifest of a version this build reads.
  static Manifest from_json(const std::string& text, const std::filesystem::path& path);
};

}  // namespace turbogr::data
