#include "turbogr/data/log_sample.h"

#include <cstdint>

#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"

namespace turbogr::data {
namespace {

// Calls visit(field) for one column of the first thousand whole rows. The last line may be cut and
// does not count.
template <class Visit>
void sample_column(const LogLayout& layout, std::string_view first_bytes, int column,
                   Visit&& visit) {
  const std::size_t end = first_bytes.rfind('\n');
  if (end != std::string_view::npos) first_bytes = first_bytes.substr(0, end);
  MemorySource source(first_bytes);
  CsvReader reader(source, "", layout.dialect, first_bytes.size() + 1);
  if (layout.header) reader.next();
  for (int row = 0; row < 1000 && reader.next(); ++row) {
    if (reader.fields().size() != layout.num_columns) continue;
    const std::string_view text = reader.fields()[static_cast<std::size_t>(column)];
    if (!text.empty()) visit(text);
  }
}

}  // namespace

bool mostly_integers(const LogLayout& layout, std::string_view first_bytes, int column) {
  int ids = 0;
  int numbers = 0;
  sample_column(layout, first_bytes, column, [&](std::string_view text) {
    std::int64_t number = 0;
    ++ids;
    numbers += parse_integer(text, number) == FieldError::kNone ? 1 : 0;
  });
  return 10 * numbers >= 9 * ids;
}

std::vector<std::string> sample_fields(const LogLayout& layout, std::string_view first_bytes,
                                       int column) {
  std::vector<std::string> fields;
  sample_column(layout, first_bytes, column,
                [&](std::string_view text) { fields.emplace_back(text); });
  return fields;
}

std::optional<TimeSpelling> usual_time_spelling(const LogLayout& layout,
                                                std::string_view first_bytes) {
  if (layout.time < 0) return std::nullopt;
  int count[3] = {};
  sample_column(layout, first_bytes, layout.time, [&](std::string_view text) {
    const TimeSpelling spelling = guess_time_spelling(text);
    std::int64_t time = 0;
    if (parse_time(text, spelling, time) == FieldError::kNone) ++count[static_cast<int>(spelling)];
  });
  const auto [whole, decimal, iso] = count;
  if (iso > whole + decimal) return TimeSpelling::kIso;
  if (whole + decimal == 0) return std::nullopt;
  return decimal > 0 ? TimeSpelling::kDecimalSeconds : TimeSpelling::kInteger;
}

}  // namespace turbogr::data
