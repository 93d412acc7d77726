// A set of rows of a table, a bit each.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace turbogr::plan {

class RowSet {
 public:
  explicit RowSet(std::int64_t rows) : words_(static_cast<std::size_t>((rows + 63) / 64)) {}

  bool has(std::uint32_t row) const { return (words_[row >> 6] >> (row & 63) & 1) != 0; }
  // Whether it was not there before.
  bool add(std::uint32_t row) {
    const std::uint64_t bit = std::uint64_t{1} << (row & 63);
    const bool added = (words_[row >> 6] & bit) == 0;
    words_[row >> 6] |= bit;
    return added;
  }
  void take_out(std::span<const std::uint32_t> rows) {
    for (const std::uint32_t row : rows) words_[row >> 6] = 0;
  }
  void add_all(const RowSet& others) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
  }
  template <class Body>
  void for_each(Body&& body) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t left = words_[i]; left != 0; left &= left - 1) {
        body(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(left))));
      }
    }
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace turbogr::plan
