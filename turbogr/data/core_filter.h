// The k-core of a log: the largest part of it in which every user has at least min_user events and
// every item at least min_item. It is unique, so the order of work does not show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace turbogr::data {

// Which of n things stay, and the new number of each that does. Starts with all.
class Survivors {
 public:
  explicit Survivors(std::int64_t count = 0);

  bool has(std::int64_t i) const {
    return ((bits_[static_cast<std::size_t>(i >> 6)] >> (i & 63)) & 1) != 0;
  }
  void drop(std::int64_t i) {
    bits_[static_cast<std::size_t>(i >> 6)] &= ~(std::uint64_t{1} << (i & 63));
  }
  void keep(std::int64_t i) {
    bits_[static_cast<std::size_t>(i >> 6)] |= std::uint64_t{1} << (i & 63);
  }
  void number();  // after the last drop or keep, before index_of and count
  std::int64_t count() const { return count_; }
  std::int64_t index_of(std::int64_t i) const {
    const auto word = static_cast<std::size_t>(i >> 6);
    const std::uint64_t below = bits_[word] & ((std::uint64_t{1} << (i & 63)) - 1);
    return static_cast<std::int64_t>(rank_[word]) + __builtin_popcountll(below);
  }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> rank_;
  std::int64_t count_ = 0;
};

struct CoreFilter {
  Survivors users;
  Survivors items;
  int rounds = 0;
  // Where items stay that have no events any more: those that do have some.
  std::optional<Survivors> items_with_events = {};

  bool keeps_event(std::int64_t user, std::int64_t item) const {
    return users.has(user) && (items_with_events ? *items_with_events : items).has(item);
  }
};

// Calls back with pieces of the log, users and items of its events side by side, front to back.
using PairBlock =
    std::function<void(std::span<const std::uint32_t>, std::span<const std::uint32_t>)>;
using PairScan = std::function<void(const PairBlock&)>;

// Counts are kept in windows of `budget_bytes`, one scan a window and round; the marks of who is
// still there take a bit a user and item more.
CoreFilter find_core(const PairScan& scan, std::int64_t num_users, std::int64_t num_items,
                     std::int64_t min_user, std::int64_t min_item, std::size_t budget_bytes);

}  // namespace turbogr::data
