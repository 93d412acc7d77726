#include "turbogr/data/file_kind.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

using namespace std::string_view_literals;

struct FileKind {
  std::string_view magic;  // the first bytes
  std::string_view name;
};

constexpr FileKind kKinds[] = {
    {"PAR1"sv, "a Parquet file"},
    {"ARROW1"sv, "an Arrow (Feather) file"},
    {"FEA1"sv, "an Arrow (Feather) file"},
    {"Obj\x01"sv, "an Avro file"},
    {"SQLite format 3"sv, "an SQLite database"},
    {"\x89HDF"sv, "an HDF5 file"},
    {"\x93NUMPY"sv, "a NumPy file"},
    {"\x80\x02"sv, "a Python pickle"},
    {"\x80\x03"sv, "a Python pickle"},
    {"\x80\x04"sv, "a Python pickle"},
    {"\x80\x05"sv, "a Python pickle"},
    {"PK\x03\x04"sv, "a zip archive (or an Excel sheet)"},
    {"\xd0\xcf\x11\xe0"sv, "an Excel sheet"},
    {"BZh"sv, "a bzip2 file"},
    {"\3757zXZ"sv, "an xz file"},
    {"7z\xbc\xaf"sv, "a 7z archive"},
    {"%PDF"sv, "a PDF file"},
};

bool starts_with_ignoring_case(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

}  // namespace

std::string_view kind_of_other_file(std::string_view first_bytes) {
  for (const FileKind& kind : kKinds) {
    if (first_bytes.starts_with(kind.magic)) return kind.name;
  }
  if (first_bytes.size() > 262 && first_bytes.substr(257).starts_with("ustar")) {
    return "a tar archive";
  }
  const std::string_view text =
      first_bytes.substr(std::min(first_bytes.find_first_not_of(" \t\r\n"), first_bytes.size()));
  // A column's name may begin with a bracket, but hardly with one and a key behind it.
  if (text.starts_with('{') || text.starts_with('[')) {
    const std::size_t next = text.find_first_not_of(" \t\r\n", 1);
    if (next != std::string_view::npos &&
        std::string_view("\"{[").find(text[next]) != std::string_view::npos)
      return "JSON";
  }
  if (starts_with_ignoring_case(text, "<!doctype html") ||
      starts_with_ignoring_case(text, "<html")) {
    return "a web page";
  }
  // Text has no zero bytes; one that strays into a row is that row's trouble alone.
  const std::string_view sample = first_bytes.substr(0, 4096);
  const std::string_view first_line = sample.substr(0, sample.find('\n'));
  const auto zeros = std::count(sample.begin(), sample.end(), '\0');
  if (first_line.find('\0') != std::string_view::npos ||
      100 * zeros > static_cast<std::ptrdiff_t>(sample.size())) {
    return "a binary file";
  }
  return {};
}

bool is_parquet(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return true;
  if (!std::filesystem::is_regular_file(path)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "PAR1";
}

void check_delimited_text(std::string_view first_bytes, const std::string& name) {
  const std::string_view kind = kind_of_other_file(first_bytes);
  if (kind.empty()) return;
  const bool page = kind == "a web page";
  TGR_CHECK(kind != "a Parquet file", "'", name, "' is ", kind,
            "; turbogr reads it with --format parquet");
  detail::throw_error("'", name, "' is ", kind,
                      page ? "; the download brought an error page instead: fetch it again"
                           : "; turbogr reads delimited text (CSV, TSV), plain, .gz or .zst: "
                             "unpack it or convert it to CSV first");
}

}  // namespace turbogr::data
