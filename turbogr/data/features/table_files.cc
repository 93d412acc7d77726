#include "turbogr/data/features/table_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/data/arrow/arrow_csv.h"
#include "turbogr/data/arrow/parquet_files.h"
#include "turbogr/data/features/feature_text.h"
#include "turbogr/data/features/known_tables.h"
#include "turbogr/data/file_kind.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ArrowStream> open_columns(const TableInput& table, std::size_t memory_bytes) {
  if (table.stream != nullptr) {
    return std::make_unique<ArrowStream>(table.path.string(), table.stream);
  }
  const auto is_file = [](const fs::directory_entry& entry) {
    return entry.path().extension() == ".parquet";
  };
  TGR_CHECK(!fs::is_directory(table.path) ||
                std::any_of(fs::recursive_directory_iterator(table.path), {}, is_file),
            "'", table.path.string(), "' is a folder without Parquet files; a table of text is a ",
            "file: name it");
  return open_parquet_table(table.path, memory_bytes);
}

std::vector<FeatureRequest> features_of(const std::vector<std::string>& texts, FeatureOwner owner,
                                        const fs::path& table) {
  const bool usual = texts == std::vector<std::string>{"auto"};
  return parse_feature_requests(usual ? usual_features(table) : texts, owner);
}

TableFile as_text(const TableInput& table, FeatureOwner owner,
                  const std::vector<std::string>& asked, std::size_t memory_bytes,
                  const fs::path& to, std::vector<std::string>& remarks) {
  if (table.stream == nullptr && !is_parquet(table.path)) {
    return {.path = table.path, .name = table.path.string(), .kept = table.kept};
  }
  const std::unique_ptr<ArrowStream> stream = open_columns(table, memory_bytes);
  const std::vector<FeatureRequest> requests = features_of(asked, owner, table.path);
  ArrowCsvOptions options;
  options.separator = [&](std::string_view column) {
    for (const FeatureRequest& request : requests) {
      if (request.name == column && request.separator != 0) return request.separator;
    }
    return kListSeparator;
  };
  const std::vector<std::string> names = stream->column_names();
  const int id = owner == FeatureOwner::kItem ? find_item_column(names) : find_user_column(names);
  if (!names.empty()) options.needed = {names[id < 0 ? 0 : static_cast<std::size_t>(id)]};
  for (const FeatureRequest& request : requests) options.needed.push_back(request.name);
  ArrowCsvColumns columns = write_arrow_csv(*stream, to, options);
  if (!columns.left_out.empty()) {
    remarks.push_back(escaped(
        fmt::format("{} table '{}': left out, being of types that turbogr does not read: {}",
                    name_of(owner), stream->name(), fmt::join(columns.left_out, ", "))));
  }
  return {.path = to,
          .name = stream->name(),
          .kept = table.kept,
          .from_columns = true,
          .lists = std::move(columns.lists)};
}

}  // namespace

TableFiles table_files(const PrepareOptions& options, const fs::path& folder,
                       std::vector<std::string>& remarks) {
  TableFiles files;
  for (const auto owner : {FeatureOwner::kUser, FeatureOwner::kItem}) {
    const bool items = owner == FeatureOwner::kItem;
    std::vector<TableFile>& to = items ? files.items : files.users;
    for (const TableInput& table : items ? options.item_tables : options.user_tables) {
      to.push_back(as_text(
          table, owner, items ? options.item_features : options.user_features, options.memory_bytes,
          folder / fmt::format("{}_table_{}.csv", name_of(owner), to.size() + 1), remarks));
    }
  }
  return files;
}

}  // namespace turbogr::data
