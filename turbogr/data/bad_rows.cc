#include "turbogr/data/bad_rows.h"

#include <fmt/format.h>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {
std::string_view name_of(BadRow kind) {
  switch (kind) {
    case BadRow::kColumns:
      return "wrong number of columns";
    case BadRow::kEmptyId:
      return "empty id";
    case BadRow::kNotANumber:
      return "not a number";
    case BadRow::kTooLarge:
      return "number too large";
    case BadRow::kBadTime:
      return "not a time";
    case BadRow::kOpenQuote:
      return "quote never closed";
    case BadRow::kLongId:
      return "id too long";
  }
  return "bad row";
}

std::string BadRows::words_for(BadRow kind, const Place& place, const Remark& remark) {
  std::string words = fmt::format("'{}', line {}", place.file, place.line);
  if (!place.column.empty()) words += fmt::format(", column {}", printable(place.column, 80));
  words += fmt::format(": {}: '{}'", name_of(kind), printable(place.text, 60));
  if (place.num_lines > 1) {
    words += fmt::format("; a quote that opens here swallows {} lines, up to line {}",
                         place.num_lines, place.line + place.num_lines - 1);
  }
  const std::string remarked = remark ? remark() : "";
  return remarked.empty() ? words : words + "; " + remarked;
}

void BadRows::add(BadRow kind, const Place& place, const Remark& remark) {
  if (!policy_.skip) {
    detail::throw_error(words_for(kind, place, remark), " (--on-error skip leaves such rows out)");
  }
  const auto slot = static_cast<std::size_t>(kind);
  total_ += place.num_lines;
  counts_[slot] += place.num_lines;
  if (samples_[slot].size() < kSamples) samples_[slot].push_back(words_for(kind, place, remark));
  if (total_ <= policy_.max_bad) return;
  std::string text_of_all =
      fmt::format("more than {} bad rows (--max-bad); the first of each kind:", policy_.max_bad);
  for (const auto& samples : samples_) {
    if (!samples.empty()) text_of_all += "\n  " + samples[0];
  }
  throw Error(text_of_all);
}

std::vector<std::string> BadRows::summary() const {
  std::vector<std::string> lines;
  for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
    if (counts_[kind] == 0) continue;
    lines.push_back(
        fmt::format("{} rows left out: {}", counts_[kind], name_of(static_cast<BadRow>(kind))));
    for (const std::string& sample : samples_[kind]) lines.push_back("  " + sample);
  }
  return lines;
}

}  // namespace turbogr::data
