// Which items of a catalogue some user met, and their places among those: a store has rows for
// these alone.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace turbogr::data {

class AppearingItems {
 public:
  explicit AppearingItems(std::int64_t items)
      : words_(static_cast<std::size_t>((items + 63) / 64)), before_(words_.size()) {}

  void mark(std::uint32_t id) {
    const std::uint64_t bit = std::uint64_t{1} << (id % 64);
    std::atomic<std::uint64_t>& word = words_[id / 64];
    // Most items have been seen before: look first, so that threads share the line in peace.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  std::int64_t count_up() {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      before_[i] = sum;
      sum += static_cast<std::uint32_t>(std::popcount(words_[i].load(std::memory_order_relaxed)));
    }
    return sum;
  }
  bool has(std::uint32_t id) const {
    return (words_[id / 64].load(std::memory_order_relaxed) >> (id % 64) & 1) != 0;
  }
  std::int64_t index(std::uint32_t id) const {
    const std::uint64_t below = (std::uint64_t{1} << (id % 64)) - 1;
    return before_[id / 64] +
           std::popcount(words_[id / 64].load(std::memory_order_relaxed) & below);
  }
  template <class Function>
  void for_each(Function&& function) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i].load(std::memory_order_relaxed); word != 0;
           word &= word - 1) {
        function(static_cast<std::int64_t>(i) * 64 + std::countr_zero(word));
      }
    }
  }

 private:
  std::vector<std::atomic<std::uint64_t>> words_;
  std::vector<std::uint32_t> before_;
};

}  // namespace turbogr::data
