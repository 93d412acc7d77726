#include "turbogr/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/mapped_pages.h"
#include "turbogr/core/output_file.h"
#include "turbogr/embedding/wire.h"

namespace turbogr::checkpoint {
namespace {

using nlohmann::json;

// "a, b and 3 more"
std::string some_of(const std::vector<std::string>& all) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + all[i];
  }
  if (all.size() > kShown) text += fmt::format(" and {} more", all.size() - kShown);
  return text;
}

// Of files that are read whole: far more than any that this program writes.
constexpr std::size_t kLargestText = 64 << 20;

constexpr std::uint64_t kVerifyThreads = 8;  // as many as memory can feed; one for 64 MB

}  // namespace

Checkpoint::Checkpoint(std::string folder) : folder_(std::move(folder)) {
  json manifest;
  try {
    manifest = parse_json(read_file(folder_ + "/manifest.json", kLargestText));
  } catch (const Error& error) {
    refuse("it has no manifest (", error.what(), ")");
  }
  if (!manifest.is_object() || !manifest.contains("format") ||
      manifest["format"] != kCheckpointFormat) {
    refuse(
        "its manifest.json is damaged or not one of a turbogr checkpoint; name a run's folder, or "
        "a checkpoint in it");
  }
  const json version = manifest.value("version", json());
  if (!version.is_number_integer() || version < 1 || version > kCheckpointVersion) {
    refuse("it has version ", version.dump(), ", this program reads 1 to ", kCheckpointVersion,
           "; use the program that wrote it");
  }
  version_ = version.get<int>();
  if (manifest.value("crc32c", json()) != manifest_sum(manifest)) {
    refuse("its manifest.json is damaged: the checksum differs");
  }
  try {  // a manifest with a right checksum and a wrong structure was made by hand
    step_ = whole_number<std::int64_t>(manifest.at("step"));
    const auto named = checkpoint_step(std::filesystem::path(folder_).filename().string());
    if (step_ < 0 || (named && *named != step_)) {
      refuse("its manifest.json is of step ", step_,
             ", not of the step in the folder's name; give the folder its own name back");
    }
    if (!manifest.at("score").is_null()) score_ = manifest.at("score").get<double>();
    command_ = manifest.at("command").get<std::string>();
    config_ = read_listed_file(manifest.at("files"), "config.toml");
    state_ = parse_json(read_listed_file(manifest.at("files"), "state.json"));
    if (!state_.is_object()) refuse("its state.json is not a JSON object");
    for (const auto& [name, fields] : manifest.at("shards").items()) {
      shards_.push_back(open_shard(name, fields));
    }
    const json tables = manifest.value("tables", json::object());
    for (const auto& [name, fields] : tables.items()) {
      Table& table = tables_[name];
      table.rows = whole_number<std::int64_t>(fields.at("rows"));
      table.placement = fields.at("placement").get<std::string>();
      const json& parts = fields.at("parts");
      for (std::size_t part = 0; part < parts.size(); ++part) {
        table.parts.push_back(open_shard(
            part_name(name, static_cast<int>(part), static_cast<int>(parts.size())), parts[part]));
      }
      if (table.parts.empty() || table.rows < 0) refuse("its table '", name, "' has no parts");
    }
  } catch (const json::exception&) {
    refuse(
        "its manifest.json lacks a field, or has one of another kind than this program writes; use "
        "another checkpoint, or the program that wrote it");
  } catch (const std::filesystem::filesystem_error& error) {
    refuse(error.what());
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("checkpoint '")) throw;
    refuse(error.what());
  }
}

Checkpoint::Shard Checkpoint::open_shard(const std::string& name, const json& fields) const {
  if (name.empty() || name.find('/') != std::string::npos) {  // it must not lead out of the folder
    refuse("its manifest.json names a file '", escaped(name), "', which is no plain name");
  }
  const std::string path = folder_ + "/" + name + ".safetensors";
  if (!std::filesystem::exists(path)) refuse("the shard '", path, "' is missing");
  if (!std::filesystem::is_regular_file(path)) refuse("the shard '", path, "' is no plain file");
  const auto bytes = whole_number<std::uint64_t>(fields.at("bytes"));
  const std::uint64_t found = std::filesystem::file_size(path);
  if (found != bytes) {
    refuse("the shard '", path, "' is damaged: it has ", found, " bytes, ", bytes, " were written");
  }
  Shard shard{name, SafetensorsFile(path), {}};
  if (json(sum_text(shard.file.header_sum())) != fields.at("header_crc32c")) {
    refuse("the shard '", path, "' is damaged: the checksum of its header differs");
  }
  for (const auto& [tensor, sum] : fields.at("tensors").items()) {
    shard.sums[tensor] = sum.get<std::string>();
  }
  return shard;
}

std::string Checkpoint::read_listed_file(const json& files, const std::string& name) const {
  std::string content = read_file(folder_ + "/" + name, kLargestText);
  if (json(sum_text(content)) != files.at(name)) {
    refuse("'", name, "' is damaged: the checksum differs");
  }
  return content;
}

void Checkpoint::check_sum(ThreadPool& pool, const Shard& shard, const TensorEntry& entry) const {
  const auto sum = shard.sums.find(entry.name);
  if (sum == shard.sums.end() || sum_text(shard.file.sum_of(pool, entry)) != sum->second) {
    refuse("tensor '", entry.name, "' in '", shard.file.path(),
           "' is damaged: the checksum differs");
  }
}

void Checkpoint::verify(int rank, int ranks) {
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.file.file_bytes();
  for (const auto& [name, table] : tables_) {
    for (const Shard& shard : table.parts) bytes += shard.file.file_bytes();
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency()) / ranks;
  const auto useful = static_cast<int>(std::min<std::uint64_t>(bytes >> 26, kVerifyThreads));
  ThreadPool pool(std::clamp(useful, 1, std::max(cores, 1)));
  int next = 0;
  const auto look_at = [&](const Shard& shard) {
    if (next++ % ranks != rank) return;
    for (const TensorEntry& entry : shard.file.entries()) check_sum(pool, shard, entry);
  };
  for (const Shard& shard : shards_) look_at(shard);
  for (const auto& [name, table] : tables_) {
    for (const Shard& shard : table.parts) look_at(shard);
  }
  verified_ = true;
}

SavedTable Checkpoint::table(const std::string& name) const {
  const auto found = tables_.find(name);
  const std::vector<std::string> tensors = {name, name + ".first_moment", name + ".second_moment"};
  if (found == tables_.end()) {  // an older program's
    const TensorEntry& whole = *find_checked(name).entry;
    if (whole.shape.size() != 2) refuse("its table '", name, "' is ", shape_text(whole.shape));
    SavedTable table(embedding::Sharding(whole.shape[0], 1, embedding::Placement::kRoundRobin));
    for (const std::string& tensor : tensors) {
      if (find(tensor) == nullptr) continue;
      const auto [shard, entry] = find_checked(tensor);
      add_column(table, tensor, {shard});
    }
    return table;
  }
  const embedding::Placement placement = embedding::placement_from_name(found->second.placement);
  SavedTable table(embedding::Sharding(found->second.rows,
                                       static_cast<int>(found->second.parts.size()), placement));
  table.placement_ = placement;
  ThreadPool alone(1);
  for (const std::string& tensor : tensors) {
    std::vector<const Shard*> parts;
    for (const Shard& part : found->second.parts) {
      const TensorEntry* entry = part.file.find(tensor);
      if (entry == nullptr) continue;
      if (!verified_) check_sum(alone, part, *entry);
      parts.push_back(&part);
    }
    if (!parts.empty()) add_column(table, tensor, parts);
  }
  if (table.find(name) == nullptr) refuse("its table '", name, "' has no rows");
  return table;
}

// f32 of as many rows as each part has by the sharding.
void Checkpoint::add_column(SavedTable& table, const std::string& tensor,
                            const std::vector<const Shard*>& parts) const {
  SavedTable::Column& column = table.columns_[tensor];
  if (std::ssize(parts) != table.sharding_.shards()) {
    refuse("tensor '", tensor, "' is in ", parts.size(), " of the ", table.sharding_.shards(),
           " parts of its table");
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const TensorEntry& entry = parts[part]->file.at(tensor);
    const std::int64_t width = entry.shape.size() == 2 ? entry.shape[1] : 1;
    const std::int64_t rows = table.sharding_.rows_of(static_cast<int>(part));
    const bool fits =
        (entry.shape.size() == 1 || entry.shape.size() == 2) && entry.shape[0] == rows &&
        (entry.dtype == DType::kF32 || entry.dtype == DType::kBf16 || entry.dtype == DType::kF16) &&
        (part == 0 || (column.width == width && column.dtype == entry.dtype));
    if (!fits) {
      refuse("tensor '", tensor, "' in '", parts[part]->file.path(), "' is ", name_of(entry.dtype),
             " ", shape_text(entry.shape), "; f32, bf16 or f16 of ", rows,
             " rows, as in its other parts, is wanted");
    }
    column.width = width;
    column.dtype = entry.dtype;
    column.parts.push_back(parts[part]->file.data(entry));
  }
}

const SavedTable::Column* SavedTable::find(std::string_view tensor) const {
  const auto found = columns_.find(tensor);
  return found == columns_.end() ? nullptr : &found->second;
}

std::int64_t SavedTable::width(std::string_view tensor) const {
  const Column* column = find(tensor);
  return column == nullptr ? 0 : column->width;
}

DType SavedTable::dtype(std::string_view tensor) const { return find(tensor)->dtype; }

const std::byte* SavedTable::row(const Column& column, std::int64_t id) const {
  return column.parts[static_cast<std::size_t>(sharding_.shard_of(id))] +
         static_cast<std::size_t>(sharding_.row_of(id)) * column.row_bytes();
}

void SavedTable::read_row(std::string_view tensor, std::int64_t id, DType wanted,
                          std::byte* into) const {
  const Column& column = *find(tensor);
  const std::byte* from = row(column, id);
  if (wanted == column.dtype) {
    std::memcpy(into, from, column.row_bytes());
    return;
  }
  const auto convert_to = [&]<class To>(To* row) {
    embedding::from_wire<To>(column.dtype, from, column.width, row);
  };
  if (wanted == DType::kBf16) {
    convert_to(reinterpret_cast<bf16*>(into));
  } else if (wanted == DType::kF16) {
    convert_to(reinterpret_cast<f16*>(into));
  } else {
    convert_to(reinterpret_cast<float*>(into));
  }
}

void SavedTable::read_part(ThreadPool& pool, std::string_view tensor,
                           const embedding::Sharding& sharding, int part, std::int64_t first,
                           std::int64_t last, std::byte* into) const {
  const Column& column = *find(tensor);
  constexpr std::int64_t kRowsAtATime = 1024;
  parallel_ranges(pool, last - first, kRowsAtATime, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(into + static_cast<std::size_t>(i) * column.row_bytes(),
                  row(column, sharding.id_of(part, first + i)), column.row_bytes());
    }
  });
}

void SavedTable::forget_pages() const {
  for (const auto& [tensor, column] : columns_) {
    for (std::size_t part = 0; part < column.parts.size(); ++part) {
      const auto rows = static_cast<std::size_t>(sharding_.rows_of(static_cast<int>(part)));
      turbogr::forget_pages(column.parts[part], rows * column.row_bytes());
    }
  }
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  for (const Shard& shard : shards_) {
    if (const TensorEntry* entry = shard.file.find(name)) return entry;
  }
  return nullptr;
}

Checkpoint::Found Checkpoint::find_checked(std::string_view name) const {
  ThreadPool alone(1);
  for (const Shard& shard : shards_) {
    if (const TensorEntry* entry = shard.file.find(name)) {
      if (!verified_) check_sum(alone, shard, *entry);
      return {&shard, entry};
    }
  }
  refuse("it has no tensor '", name, "'; it belongs to another model or version");
}

void Checkpoint::read(const NamedTensor& into) const {
  find_checked(into.name).shard->file.read(into);
}

void Checkpoint::read_all(const std::vector<NamedTensor>& into,
                          const std::vector<std::string>& shards) const {
  std::set<std::string> unread;
  for (const Shard& shard : shards_) {
    const bool wanted =
        shards.empty() || std::find(shards.begin(), shards.end(), shard.name) != shards.end();
    if (!wanted) continue;
    for (const TensorEntry& entry : shard.file.entries()) {
      // A table, which an older program kept among the others.
      const bool table = entry.name == "items" || entry.name.starts_with("items.");
      if (version_ > 1 || !table) unread.insert(entry.name);
    }
  }
  std::vector<std::string> absent;
  std::vector<std::string> different;
  for (const NamedTensor& tensor : into) {
    const TensorEntry* entry = find(tensor.name);
    if (entry == nullptr) {
      absent.push_back(tensor.name);
    } else if (entry->dtype != tensor.dtype || entry->shape != tensor.shape) {
      different.push_back(fmt::format("{} is {} {}, {} {} wanted", tensor.name,
                                      name_of(entry->dtype), shape_text(entry->shape),
                                      name_of(tensor.dtype), shape_text(tensor.shape)));
    }
    unread.erase(tensor.name);
  }
  if (!absent.empty() || !different.empty() || !unread.empty()) {
    std::string text = "it is of another model:";
    if (!absent.empty()) text += " it lacks " + some_of(absent) + ";";
    if (!different.empty()) text += " " + some_of(different) + ";";
    if (!unread.empty()) text += " it also has " + some_of({unread.begin(), unread.end()}) + ";";
    refuse(text, " use the config that wrote it (config.toml beside it)");
  }
  for (const NamedTensor& tensor : into) read(tensor);
}

}  // namespace turbogr::checkpoint
