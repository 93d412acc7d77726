#include "turbogr/data/item_titles.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {
namespace {

constexpr std::array<std::string_view, 12> kTitleNames = {
    "title",        "name",       "movie_title", "product_title", "item_title", "item_name",
    "product_name", "video_name", "track_name",  "song_name",     "book_title", "caption"};
constexpr std::size_t kLongest = 200;

// The length of the UTF-8 character at `at`, 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  const std::size_t length = byte < 0x80                   ? 1
                             : byte >= 0xc2 && byte < 0xe0 ? 2
                             : byte >= 0xe0 && byte < 0xf0 ? 3
                             : byte >= 0xf0 && byte < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || length > text.size() - at) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// Bytes that are no UTF-8 are taken as Latin-1, which MovieLens' older files are in. Control
// characters could move a terminal's cursor and become question marks.
std::string clean(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size() && result.size() < kLongest;) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text, at);
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

}  // namespace

bool ItemTitles::read_table(const std::filesystem::path& path, const Store& store) {
  Input input = open_input(path);
  CsvReader reader(*input.bytes, input.name, {});
  std::string_view head = reader.peek();
  head = head.substr(0, head.find('\n'));
  if (head.find_first_of(",;|\t") == std::string_view::npos &&
      head.find("::") == std::string_view::npos)
    return false;
  const std::string delimiter = guess_delimiter(head, input.name);
  reader.set_dialect({.delimiter = delimiter, .quotes = delimiter == "," || delimiter == ";"});
  if (!reader.next()) return false;
  const std::optional<Columns> columns =
      find_columns({reader.fields().begin(), reader.fields().end()}, delimiter);
  if (!columns) return false;
  bool more = columns->header ? reader.next() : true;
  for (; more; more = reader.next()) {
    if (reader.fields().size() <= std::max(columns->item, columns->title)) continue;
    const auto item = store.item_ids().find(reader.fields()[columns->item]);
    if (item) titles_.emplace(*item, clean(reader.fields()[columns->title]));
  }
  return true;
}

ItemTitles ItemTitles::of(const Store& store) {
  ItemTitles titles;
  for (const SideTable& table : store.manifest().side_tables) {
    if (table.key == "item" && titles.read_table(store.folder() / table.file.file, store)) break;
  }
  return titles;
}

ItemTitles ItemTitles::read(const std::filesystem::path& path, const Store& store) {
  ItemTitles titles;
  TGR_CHECK(titles.read_table(path, store), "'", path.string(),
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
