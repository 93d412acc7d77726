#include "turbogr/data/item_titles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/utf8.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/file_kind.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {
namespace {

constexpr std::array<std::string_view, 12> kTitleNames = {
    "title",        "name",       "movie_title", "product_title", "item_title", "item_name",
    "product_name", "video_name", "track_name",  "song_name",     "book_title", "caption"};
constexpr std::size_t kLongest = 200;

// Bytes that are no UTF-8 are taken as Latin-1, which MovieLens' older files are in. Control
// characters could move a terminal's cursor and become question marks.
std::string clean(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size() && result.size() < kLongest;) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text.substr(at));
    const bool second_controls =
        length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || second_controls || (length == 0 && byte < 0xa0)) {
      result += '?';
      at += second_controls ? 2 : 1;
    } else if (length == 0) {
      result += static_cast<char>(0xc0 | (byte >> 6));
      result += static_cast<char>(0x80 | (byte & 0x3f));
      ++at;
    } else {
      result += text.substr(at, length);
      at += length;
    }
  }
  return result;
}

struct Columns {
  std::size_t item = 0;
  std::size_t title = 1;
  bool header = true;
};

// Without a header only MovieLens' own spellings are known: id, title, genres.
std::optional<Columns> find_columns(const std::vector<std::string>& first,
                                    const std::string& delimiter) {
  for (const std::string_view wanted : kTitleNames) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      std::string name = first[i];
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (name != wanted) continue;
      const int item = find_item_column(first);
      const Columns columns{.item = item < 0 ? 0 : static_cast<std::size_t>(item), .title = i};
      if (columns.item != columns.title) return columns;
    }
  }
  if (first.size() >= 2 && (delimiter == "::" || delimiter == "|")) {
    return Columns{.item = 0, .title = 1, .header = false};
  }
  return std::nullopt;
}

bool has_no_text(const std::filesystem::path& table) {
  const Input input = open_input(table);
  return CsvReader(*input.bytes, input.name, {}).peek().empty();
}

// What became of the rows of a table.
struct TitleRows {
  std::int64_t unknown_items = 0;  // they name no item of the store
  std::int64_t cut_short = 0;      // no title or no id in them
  std::int64_t swallowed = 0;      // lines behind a quote left open
  std::int64_t first_open_quote = 0;
};

// Calls use(item, title as it stands there) for the rows whose item the store has. Nothing when the
// table has no column of titles.
template <class Use>
std::optional<TitleRows> read_titles(const std::filesystem::path& path, const Store& store,
                                     Use&& use) {
  Input input = open_input(path);
  CsvReader reader(*input.bytes, input.name, {});
  std::string_view head = reader.peek();
  check_delimited_text(head, input.name);
  head = head.substr(0, head.find('\n'));
  if (head.find_first_of(",;|\t") == std::string_view::npos &&
      head.find("::") == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string delimiter = guess_delimiter(head, input.name);
  reader.set_dialect({.delimiter = delimiter, .quotes = delimiter == "," || delimiter == ";"});
  if (!reader.next()) return std::nullopt;
  std::vector<std::string> first(reader.fields().begin(), reader.fields().end());
  strip_recbole_types(first);
  const std::optional<Columns> columns = find_columns(first, delimiter);
  if (!columns) return std::nullopt;
  TitleRows rows;
  bool more = columns->header ? reader.next() : true;
  for (; more; more = reader.next()) {
    if (reader.unclosed_quote()) {
      rows.swallowed += reader.num_lines();
      if (rows.first_open_quote == 0) rows.first_open_quote = reader.line();
      continue;
    }
    if (reader.fields().size() <= std::max(columns->item, columns->title)) {
      ++rows.cut_short;
      continue;
    }
    const auto item = store.item_ids().find(reader.fields()[columns->item]);
    if (item) {
      use(*item, reader.fields()[columns->title]);
    } else {
      ++rows.unknown_items;
    }
  }
  return rows;
}

}  // namespace

ItemTitles ItemTitles::of(const Store& store) {
  ItemTitles titles;
  for (const SideTable& table : store.manifest().side_tables) {
    if (table.key == "item" && titles.add_table(store.folder() / table.file.file, store)) break;
  }
  return titles;
}

std::string ItemTitles::unused_of(const std::filesystem::path& table, const Store& store) {
  std::vector<bool> titled(static_cast<std::size_t>(store.num_items()));
  const std::optional<TitleRows> rows = read_titles(
      table, store,
      [&](std::int64_t item, std::string_view) { titled[static_cast<std::size_t>(item)] = true; });
  if (!rows && has_no_text(table)) return "it is empty, so `recommend` shows ids only";
  if (!rows) {
    return fmt::format("it has no column of titles ({}, ...), so `recommend` shows ids only",
                       fmt::join(kTitleNames.begin(), kTitleNames.begin() + 3, ", "));
  }
  std::vector<std::string> parts;
  const auto with_title = std::count(titled.begin(), titled.end(), true);
  if (with_title < store.num_items()) {
    parts.push_back(
        fmt::format("{} of {} items have a title in it", with_title, store.num_items()));
  }
  if (rows->unknown_items > 0) {
    parts.push_back(fmt::format("{} rows name no item of the store", rows->unknown_items));
  }
  if (rows->cut_short > 0) {
    parts.push_back(fmt::format("{} rows have too few columns", rows->cut_short));
  }
  if (rows->swallowed > 0) {
    parts.push_back(fmt::format("{} lines are lost to quotes never closed, the first at line {}",
                                rows->swallowed, rows->first_open_quote));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

bool ItemTitles::add_table(const std::filesystem::path& path, const Store& store) {
  return read_titles(path, store,
                     [&](std::int64_t item, std::string_view title) {
                       titles_.emplace(item, clean(title));
                     })
      .has_value();
}

ItemTitles ItemTitles::read(const std::filesystem::path& path, const Store& store) {
  ItemTitles titles;
  TGR_CHECK(titles.add_table(path, store), "'", path.string(),
            "' has no column of titles; give a file with a header that names the item's id and "
            "its title, e.g. movieId,title");
  TGR_CHECK(!titles.empty(), "'", path.string(), "' names none of the ", store.num_items(),
            " items of the store '", store.folder().string(), "'");
  return titles;
}

std::string_view ItemTitles::text(std::int64_t item) const {
  const auto found = titles_.find(item);
  return found == titles_.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace turbogr::data
