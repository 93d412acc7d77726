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
  }
  return "bad row";
}

void BadRows::add(BadRow kind, std::string_view file, std::int64_t line, std::string_view column,
                  std::string_view text, std::string_view remark) {
  const std::string place = column.empty()
                                ? fmt::format("'{}', line {}", file, line)
                                : fmt::format("'{}', line {}, column {}", file, line, column);
  const std::string what = fmt::format("{}: {}: '{}'{}{}", place, name_of(kind),
                                       printable(text, 60), remark.empty() ? "" : "; ", remark);
  TGR_CHECK(policy_.skip, what, " (--on-error skip leaves such rows out)");
  const auto slot = static_cast<std::size_t>(kind);
  ++total_;
  ++counts_[slot];
  if (samples_[slot].size() < kSamples) samples_[slot].push_back(what);
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
