#include "turbogr/data/yambda/yambda_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/file_kind.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

// A mapping and the feature that its other column is.
struct Mapping {
  const char* file;
  const char* feature;
};
constexpr Mapping kMappings[] = {{"artist_item_mapping", "artist_id"},
                                 {"album_item_mapping", "album_id"}};

// As published, or delimited text; empty: the folder has none of them.
fs::path find_file(const fs::path& folder, const std::string& name) {
  for (const char* ending : {".parquet", ".csv", ".csv.gz", ".csv.zst"}) {
    fs::path path = folder / (name + ending);
    if (fs::is_regular_file(path)) return path;
  }
  return {};
}

// Files of events of one type, which have no column that says it.
constexpr const char* kFilesOfOneType[] = {"listens", "likes", "dislikes", "unlikes", "undislikes"};

// The one of these that a log is by its name; empty: multi_event, or what it is cut from.
std::string only_type(const fs::path& log) {
  const std::string name = log.filename().string();
  const std::string stem = name.substr(0, name.find('.'));
  const auto* const found = std::ranges::find(kFilesOfOneType, stem);
  return found != std::end(kFilesOfOneType) ? stem : "";
}

fs::path log_of(const fs::path& input) {
  if (!fs::is_directory(input)) return input;
  if (fs::path all = find_file(input, "multi_event"); !all.empty()) return all;
  std::vector<fs::path> found;
  for (const char* name : kFilesOfOneType) {
    if (fs::path log = find_file(input, name); !log.empty()) found.push_back(std::move(log));
  }
  TGR_CHECK(found.size() < 2, "'", input.string(), "' holds no multi_event but '",
            found.empty() ? "" : found.front().filename().string(), "' and ", found.size() - 1,
            " others of one type of event; name the file that is meant");
  TGR_CHECK(!found.empty(), "'", input.string(),
            "' holds no multi_event.parquet (or .csv, .csv.gz, .csv.zst), nor listens, likes, "
            "dislikes, unlikes or undislikes; name a folder that does, such as flat/50m, or the "
            "file");
  return found.front();
}

// What becomes of events of that type. Where all are likes or the like, none needs a signal to say
// so.
std::vector<std::string> labels_of(const std::string& type) {
  if (type.empty()) {
    return {"listen_plus=event_type==listen&played_ratio_pct>=50", "like=event_type==like",
            "skip=event_type==listen&!played_ratio_pct>=50"};
  }
  if (type == "listens") return {"listen_plus=played_ratio_pct>=50", "skip=!played_ratio_pct>=50"};
  return {};
}

fs::path mapping_near(const fs::path& log, const std::string& name) {
  fs::path folder = fs::absolute(log).parent_path();
  for (int levels = 0; levels < 3; ++levels, folder = folder.parent_path()) {
    fs::path found = find_file(folder, name);
    if (!found.empty()) return found;
  }
  return {};
}

void add_mappings(PrepareOptions& options, std::vector<std::string>& remarks) {
  if (options.shards > 1) {
    remarks.push_back(
        "a shard takes no tables; give artist_item_mapping and album_item_mapping to `turbogr data "
        "merge` with --item-table, and --item-features artist_id,album_id");
    return;
  }
  std::vector<TableInput> tables;
  std::vector<std::string> features;
  for (const Mapping& mapping : kMappings) {
    const fs::path found = mapping_near(options.inputs.front(), mapping.file);
    if (found.empty()) {
      remarks.push_back(
          fmt::format("no {}.parquet or .csv beside '{}' or in the two folders above: items have "
                      "no {} (a table "
                      "that lies elsewhere is given with --item-table)",
                      mapping.file, options.inputs.front().string(), mapping.feature));
      continue;
    }
    tables.emplace_back(found).kept = false;  // nothing in it but the feature
    features.push_back(fmt::format("{}:category", mapping.feature));
  }
  tables.insert(tables.end(), options.item_tables.begin(), options.item_tables.end());
  options.item_tables = std::move(tables);
  if (options.item_features.empty()) options.item_features = std::move(features);
}

}  // namespace

PrepareOptions yambda_options(PrepareOptions options, std::vector<std::string>& remarks) {
  TGR_CHECK(!options.inputs.empty(), "no input file is given");
  for (fs::path& input : options.inputs) input = log_of(input);
  const bool parquet = is_parquet(options.inputs.front());
  const std::string type = only_type(options.inputs.front());
  for (const fs::path& input : options.inputs) {
    TGR_CHECK(is_parquet(input) == parquet, "'", options.inputs.front().string(), "' and '",
              input.string(), "': one is Parquet and the other is not; prepare one kind at a time");
    TGR_CHECK(only_type(input) == type, "'", options.inputs.front().string(), "' and '",
              input.string(),
              "': listens, likes, dislikes, unlikes and undislikes do not say of an ",
              "event which of these it is, and multi_event has the events of them all: give ",
              "multi_event, or files of one type");
  }
  options.format = parquet ? LogFormat::kParquet : LogFormat::kCsv;
  if (options.time_unit == "auto") options.time_unit = "s";
  ColumnMap& columns = options.columns;
  if (columns.signals.empty()) columns.signals = {"none"};  // is_organic is none
  if (columns.features.empty()) columns.features = {"is_organic:category"};
  const std::vector<std::string> labels = labels_of(type);
  columns.labels.insert(columns.labels.begin(), labels.begin(), labels.end());
  add_mappings(options, remarks);
  return options;
}

}  // namespace turbogr::data
