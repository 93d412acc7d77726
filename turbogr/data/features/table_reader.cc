#include "turbogr/data/features/table_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "turbogr/core/check.h"
#include "turbogr/data/features/known_tables.h"
#include "turbogr/data/field.h"
#include "turbogr/data/file_kind.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

// A column by its number from 1, for tables without a header; -1: it is no number of one.
int numbered_column(const std::string& name, std::size_t num_columns) {
  std::int64_t number = 0;
  if (parse_integer(name, number) != FieldError::kNone) return -1;
  if (number < 1 || number > static_cast<std::int64_t>(num_columns)) return -1;
  return static_cast<int>(number - 1);
}

bool is_pipe(const fs::path& path) { return path == "-" || fs::is_other(path); }

int named_column(const std::vector<std::string>& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? -1 : static_cast<int>(at - names.begin());
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TableReader::TableReader(const TableFile& file, FeatureOwner owner,
                         const std::vector<FeatureRequest>& requests)
    : name_(file.name), input_(open_input(file.path)), reader_(*input_.bytes, name_, {}) {
  std::string_view head = reader_.peek();
  check_delimited_text(head, name_);
  TGR_CHECK(!head.empty(), "'", name_, "' is empty; give a table with a header and rows");
  head = head.substr(0, std::min(head.find('\n'), head.size() - 1) + 1);
  dialect_.delimiter = file.from_columns ? "," : guess_delimiter(head, name_);
  dialect_.quotes = dialect_.delimiter == "," || dialect_.delimiter == ";";
  MemorySource source(head);
  CsvReader first(source, name_, dialect_, head.size() + 1);
  TGR_CHECK(first.next(), "'", name_, "' is empty");
  names_.assign(first.fields().begin(), first.fields().end());
  std::vector<std::string> stripped = names_;
  if (strip_recbole_types(stripped)) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      types_.push_back(names_[i].substr(stripped[i].size() + 1));
    }
    names_ = stripped;
  } else if (file.from_columns) {
    for (const std::string& name : names_) types_.push_back(is_in(file.lists, name) ? "list" : "");
  }
  const int id = owner == FeatureOwner::kItem ? find_item_column(names_) : find_user_column(names_);
  id_ = id < 0 ? 0 : static_cast<std::size_t>(id);
  header_ = !types_.empty() || id >= 0 ||
            std::any_of(requests.begin(), requests.end(), [&](const FeatureRequest& request) {
              return named_column(names_, request.name) >= 0 &&
                     numbered_column(request.name, names_.size()) < 0;
            });
  const std::vector<std::string> known = columns_without_header(name_);
  if (id < 0 && known.size() == names_.size()) {
    header_ = false;
    names_ = known;
  } else if (!header_) {
    for (std::size_t i = 0; i < names_.size(); ++i) names_[i] = std::to_string(i + 1);
  }
  for (const FeatureRequest& request : requests) {
    const int named = named_column(names_, request.name);
    columns_.push_back(named >= 0 ? named : numbered_column(request.name, names_.size()));
    TGR_CHECK(columns_.back() != static_cast<int>(id_), "'", name_, "': column '", request.name,
              "' holds the ids of the ", name_of(owner), "s and cannot be a feature of theirs");
    TGR_CHECK(named < 0 || std::count(names_.begin(), names_.end(), request.name) == 1, "'", name_,
              "': two columns are named '", printable(request.name, 80), "'; rename one");
  }
  reader_.set_dialect(dialect_);
  if (header_) reader_.next();
}

std::string_view TableReader::type_of(int column) const {
  return types_.empty() ? std::string_view() : types_[static_cast<std::size_t>(column)];
}

std::vector<std::string> TableReader::sample(int column) {
  // The header, where there is one, is behind the reader; the last line may be cut.
  std::string_view bytes = reader_.peek();
  const std::size_t end = bytes.rfind('\n');
  if (end != std::string_view::npos) bytes = bytes.substr(0, end);
  MemorySource source(bytes);
  CsvReader rows(source, name_, dialect_, bytes.size() + 1);
  std::vector<std::string> fields;
  for (int row = 0; row < 1000 && rows.next(); ++row) {
    if (rows.fields().size() != names_.size()) continue;
    fields.emplace_back(rows.fields()[static_cast<std::size_t>(column)]);
  }
  return fields;
}

void check_features_found(const std::vector<const TableReader*>& tables, FeatureOwner owner,
                          const std::vector<FeatureRequest>& requests) {
  if (requests.empty()) return;
  TGR_CHECK(!tables.empty(), "--", name_of(owner), "-features: there is no table about ",
            name_of(owner), "s; give one with --", name_of(owner), "-table");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto has_it = [&](const TableReader* table) { return table->columns()[i] >= 0; };
    if (std::any_of(tables.begin(), tables.end(), has_it)) continue;
    std::vector<std::string> there;
    there.reserve(tables.size());
    for (const TableReader* table : tables) {
      there.push_back(
          fmt::format("'{}' has: {}", table->name(), fmt::join(table->column_names(), ", ")));
    }
    detail::throw_error("--", name_of(owner), "-features: there is no column '", requests[i].name,
                        "'; ", printable(fmt::format("{}", fmt::join(there, "; ")), 800));
  }
}

std::vector<FeatureRequest> feature_requests(const std::vector<std::string>& texts,
                                             FeatureOwner owner,
                                             const std::vector<TableFile>& tables) {
  if (texts != std::vector<std::string>{"auto"}) return parse_feature_requests(texts, owner);
  std::vector<std::string> found;
  for (const TableFile& file : tables) {
    TGR_CHECK(!is_pipe(file.path), "--", name_of(owner), "-features auto cannot look into '",
              file.name, "', which can be read only once; name the columns");
    const std::vector<std::string> usual = usual_features(file.name);
    const TableReader table(file, owner, parse_feature_requests(usual, owner));
    for (std::size_t i = 0; i < usual.size(); ++i) {
      const bool fresh = std::find(found.begin(), found.end(), usual[i]) == found.end();
      if (table.columns()[i] >= 0 && fresh) found.push_back(usual[i]);
    }
  }
  TGR_CHECK(!found.empty(), "--", name_of(owner), "-features auto: none of the tables about ",
            name_of(owner), "s is one of KuaiRand's or MovieLens', whose columns are known; ",
            "name the columns to keep");
  return parse_feature_requests(found, owner);
}

void check_feature_tables(const std::vector<TableFile>& tables, FeatureOwner owner,
                          const std::vector<FeatureRequest>& requests, const BadRowPolicy& policy,
                          std::vector<std::string>& remarks) {
  if (requests.empty()) return;
  std::vector<std::unique_ptr<TableReader>> opened;
  std::vector<const TableReader*> seen;
  for (const TableFile& file : tables) {
    if (is_pipe(file.path)) return;
    opened.push_back(std::make_unique<TableReader>(file, owner, requests));
    seen.push_back(opened.back().get());
  }
  check_features_found(seen, owner, requests);
  BadRows bad(policy);
  for (const auto& table : opened) {
    table->for_each_row([](const CsvReader&) {},
                        [&](const CsvReader& reader, BadRow kind) {
                          bad.add(kind, {.file = table->name(),
                                         .line = reader.line(),
                                         .num_lines = reader.num_lines(),
                                         .text = reader.text()});
                        });
  }
  for (const std::string& line : bad.summary()) remarks.push_back(line);
}

}  // namespace turbogr::data
