#include "turbogr/data/yambda/yambda_inputs.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>

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

fs::path log_of(const fs::path& input) {
  if (!fs::is_directory(input)) return input;
  fs::path log = find_file(input, "multi_event");
  TGR_CHECK(!log.empty(), "'", input.string(),
            "' holds no multi_event.parquet (or .csv, .csv.gz, .csv.zst); name a folder that does, "
            "such as flat/50m, or the file");
  return log;
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
  for (const fs::path& input : options.inputs) {
    TGR_CHECK(is_parquet(input) == parquet, "'", options.inputs.front().string(), "' and '",
              input.string(), "': one is Parquet and the other is not; prepare one kind at a time");
  }
  options.format = parquet ? LogFormat::kParquet : LogFormat::kCsv;
  if (options.time_unit == "auto") options.time_unit = "s";
  ColumnMap& columns = options.columns;
  if (columns.signals.empty()) columns.signals = {"none"};  // is_organic is none
  if (columns.features.empty()) columns.features = {"is_organic:category"};
  const char* const labels[] = {"listen_plus=event_type==listen&played_ratio_pct>=50",
                                "like=event_type==like",
                                "skip=event_type==listen&!played_ratio_pct>=50"};
  columns.labels.insert(columns.labels.begin(), std::begin(labels), std::end(labels));
  add_mappings(options, remarks);
  return options;
}

}  // namespace turbogr::data
