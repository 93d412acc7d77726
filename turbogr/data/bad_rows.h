// Rows that cannot be used: the first one stops the work, or they are counted by kind, a few of
// each kept for the report, until there are too many.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr::data {

enum class BadRow : std::uint8_t {
  kColumns,
  kEmptyId,
  kNotANumber,
  kTooLarge,
  kBadTime,
  kOpenQuote,
  kLongId,
};
inline constexpr int kNumBadRowKinds = 7;
std::string_view name_of(BadRow kind);

struct BadRowPolicy {
  bool skip = false;            // false: the first bad row throws
  std::int64_t max_bad = 1000;  // when skipping: more than this throws
};

class BadRows {
 public:
  explicit BadRows(BadRowPolicy policy) : policy_(policy) {}

  // A row that cannot be used, where it is and what stands there.
  struct Place {
    std::string_view file;
    std::int64_t line = 0;
    std::int64_t num_lines = 1;    // each counts: a quote left open swallows the rows behind it
    std::string_view column = "";  // empty when the row as a whole is wrong
    std::string_view text;         // the field or the row
  };
  // `remark` is asked for only when the row is going to be shown, so that millions of bad rows cost
  // no more than good ones.
  using Remark = std::function<std::string()>;
  void add(BadRow kind, const Place& place, const Remark& remark = {});

  std::int64_t count() const { return total_; }  // in lines
  // Lines for people: counts by kind and up to three rows of each. Empty when there are none.
  std::vector<std::string> summary() const;

 private:
  static constexpr std::size_t kSamples = 3;

  static std::string words_for(BadRow kind, const Place& place, const Remark& remark);

  BadRowPolicy policy_;
  std::int64_t total_ = 0;
  std::array<std::int64_t, kNumBadRowKinds> counts_ = {};
  std::array<std::vector<std::string>, kNumBadRowKinds> samples_;
};

}  // namespace turbogr::data
