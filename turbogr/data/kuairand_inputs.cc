#include "turbogr/data/kuairand_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/file_kind.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

// "log_random" of log_random.csv, log_random.csv.gz and log_random.parquet; empty for other files.
std::string name_of_published(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t end = std::min(name.find(".csv"), name.find(".parquet"));
  return end == std::string::npos ? "" : name.substr(0, end);
}

bool of_items(const fs::path& table) {
  return table.filename().string().starts_with("video_features");
}

bool named_table(const fs::path& path) {
  return of_items(path) || path.filename().string().starts_with("user_features");
}

}  // namespace

bool is_kuairand_log(const fs::path& path) {
  const std::string name = name_of_published(path);
  return name.starts_with("log_standard") || name.starts_with("log_random");
}

bool is_kuairand_table(const fs::path& path) {
  const std::string name = name_of_published(path);
  return name.starts_with("user_features") || name.starts_with("video_features_basic");
}

std::vector<fs::path> kuairand_files(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_kuairand_log(entry) || is_kuairand_table(entry)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  TGR_CHECK(!found.empty(), "'", folder.string(),
            "' holds none of KuaiRand's files (log_standard_*.csv or .parquet, ...)");
  const auto twice = std::adjacent_find(found.begin(), found.end(), [](auto& a, auto& b) {
    return name_of_published(a) == name_of_published(b);
  });
  TGR_CHECK(twice == found.end(), "'", twice->string(), "' and '", std::next(twice)->string(),
            "' are the same in two forms, whose events would count twice; name the files wanted");
  return found;
}

PrepareOptions kuairand_options(PrepareOptions options, std::vector<std::string>& remarks) {
  std::vector<fs::path> files;
  for (const fs::path& input : options.inputs) {
    if (!fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    for (fs::path& file : kuairand_files(input)) files.push_back(std::move(file));
  }
  if (std::none_of(files.begin(), files.end(), is_parquet)) return options;

  const auto tables_from = std::stable_partition(files.begin(), files.end(),
                                                 [](auto& file) { return !named_table(file); });
  std::vector<fs::path> tables(tables_from, files.end());
  files.erase(tables_from, files.end());
  TGR_CHECK(!files.empty(), "the inputs hold feature tables only; give a log as well");
  const auto is_text = [](const fs::path& log) { return !is_parquet(log); };
  const auto text = std::find_if(files.begin(), files.end(), is_text);
  if (text == files.end()) {
    options.format = LogFormat::kParquet;
    ColumnMap& columns = options.columns;
    if (columns.user.empty()) columns.user = "user_id";
    if (columns.item.empty()) columns.item = "video_id";
    if (columns.time.empty()) columns.time = "time_ms";
  } else {
    const auto other = std::find_if_not(files.begin(), files.end(), is_text);
    TGR_CHECK(other == files.end(), "'", text->string(), "' and '", other->string(),
              "': one is Parquet and the other is not; prepare one kind at a time");
  }
  options.inputs = std::move(files);
  if (options.shards > 1 && !tables.empty()) {
    std::string left;
    for (const fs::path& table : tables) left += (left.empty() ? "" : ", ") + table.string();
    remarks.push_back(fmt::format(
        "a shard takes no tables; give these to `turbogr data merge` with --user-table and "
        "--item-table: {}",
        left));
    return options;
  }
  for (auto* given : {&options.user_tables, &options.item_tables}) {
    const bool items = given == &options.item_tables;
    std::vector<TableInput> all;
    for (const fs::path& table : tables) {
      if (of_items(table) == items) all.emplace_back(table);
    }
    given->insert(given->begin(), all.begin(), all.end());
  }
  return options;
}

}  // namespace turbogr::data
