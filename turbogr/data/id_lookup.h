// From keys to dense indices. The bitmap's ids are answered by counting bits; the listed ones by a
// hash table over a window of the list: all of it when it fits, else window after window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/data/file.h"
#include "turbogr/data/id_collector.h"
#include "turbogr/data/run_reader.h"

namespace turbogr::data {

class IdLookup {
 public:
  // Borrows ids. The table takes at most `budget_bytes`.
  IdLookup(const SortedIds& ids, std::size_t budget_bytes);

  static std::int64_t windows_for(const SortedIds& ids, std::size_t budget_bytes);
  std::int64_t num_windows() const { return num_windows_; }
  void load(std::int64_t window);  // window 0 is loaded from the start

  // -1 when the key is in another window.
  std::int64_t find(std::int64_t key) const {
    if (static_cast<std::uint64_t>(key) < 64 * ids_->bits.size()) return ids_->index_of_bit(key);
    return find_listed(key);
  }

 private:
  struct Slot {
    std::int64_t key = 0;
    std::int64_t index = -1;  // -1: free
  };
  std::int64_t find_listed(std::int64_t key) const;

  const SortedIds* ids_;
  std::int64_t num_windows_ = 1;
  std::int64_t window_size_ = 0;
  std::vector<Slot> slots_;
};

// Hands out the ids in ascending order, one a call.
class IdStream {
 public:
  explicit IdStream(const SortedIds& ids);
  std::int64_t next_integer();
  const std::string& next_string();

 private:
  const SortedIds* ids_;
  std::int64_t place_ = 0;  // how many were handed out
  std::size_t word_ = 0;    // of the bitmap
  std::uint64_t left_ = 0;  // bits of that word still to come
  FileHandle file_;
  std::unique_ptr<RunReader> reader_;
  std::string text_;
};

}  // namespace turbogr::data
