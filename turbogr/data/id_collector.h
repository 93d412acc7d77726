// Gathers the distinct ids of a log in bounded memory and numbers them in ascending order: integers
// by value, strings by byte. Small integers live in a bitmap; everything else in a set that is
// sorted and written out when full, the pieces merged at the end.
//
// A string travels through the pipeline as its 64-bit hash, its key. Two strings with one hash are
// found when their keys are looked up, and refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/file.h"
#include "turbogr/data/manifest.h"

namespace turbogr::data {

std::int64_t key_of(std::string_view id);  // the hash a string id travels as

// Keys seen, open addressing; grows up to a limit and then says it is full.
class KeySet {
 public:
  explicit KeySet(std::size_t budget_bytes);
  // True when the key is new.
  bool insert(std::int64_t key);
  bool full() const { return count_ >= limit_; }
  std::size_t size() const { return count_ + (has_zero_ ? 1 : 0); }
  std::vector<std::int64_t> take_sorted();  // and empty it

 private:
  void grow();

  std::size_t limit_;
  std::vector<std::int64_t> slots_;  // 0: free
  std::size_t count_ = 0;
  bool has_zero_ = false;
};

// Strings seen, with their keys; full when its budget is used up.
class StringSet {
 public:
  explicit StringSet(std::size_t budget_bytes);
  // Returns the key. Throws when another string in the set has the same one.
  std::int64_t insert(std::string_view id);
  bool full() const;
  std::size_t size() const { return begins_.size(); }
  // All of them in order; the views live until clear().
  std::vector<std::string_view> sorted() const;
  void clear();

 private:
  struct Slot {
    std::int64_t key = 0;
    std::uint32_t place = 0;  // in begins_, from 1; 0: free
  };
  std::string_view text_of(std::size_t place) const;
  void grow();

  std::size_t budget_;
  std::vector<Slot> slots_;
  std::string text_;  // end to end
  std::vector<std::uint64_t> begins_;
};

// The ids of one side, users or items, once all are known: what the collector leaves behind.
struct SortedIds {
  IdKind kind = IdKind::kInt64;
  std::int64_t count = 0;
  // Integers in [0, 64 * bits.size()) are the set bits; their rank is rank[word] + bits below.
  std::vector<std::uint64_t> bits;
  std::vector<std::uint32_t> rank;
  std::int64_t num_bits = 0;
  std::int64_t num_negative = 0;  // listed keys that sort before the bitmap's
  // All other keys, in ascending order of their ids, in a file.
  std::int64_t num_listed = 0;
  std::filesystem::path keys_file;
  std::filesystem::path text_file;  // strings: length (uint32) and bytes, in the same order

  std::int64_t index_of_listed(std::int64_t place) const {
    return place < num_negative ? place : place + num_bits;
  }
  std::int64_t index_of_bit(std::int64_t id) const {
    const auto word = static_cast<std::size_t>(id >> 6);
    const std::uint64_t below = bits[word] & ((std::uint64_t{1} << (id & 63)) - 1);
    return num_negative + rank[word] + __builtin_popcountll(below);
  }
};

class IdCollector {
 public:
  // Temporary files start with `stem`. The budget bounds what is kept in memory.
  IdCollector(IdKind kind, std::filesystem::path stem, std::size_t budget_bytes);

  void add_integer(std::int64_t id) {
    if (static_cast<std::uint64_t>(id) < num_bits_) {
      bits_[static_cast<std::size_t>(id >> 6)] |= std::uint64_t{1} << (id & 63);
    } else {
      add_uncommon(id);
    }
  }
  std::int64_t add_string(std::string_view id);  // returns its key

  // Whether the bitmap has, or has got now, a place for all ids from `least` to `most`. Then
  // add_common takes them from several threads at once.
  bool make_common(std::int64_t least, std::int64_t most);
  void add_common(std::int64_t id) {
    std::atomic_ref<std::uint64_t> word(bits_[static_cast<std::size_t>(id >> 6)]);
    const std::uint64_t bit = std::uint64_t{1} << (id & 63);
    // Most ids have been seen before: looking is cheaper than adding.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }

  // Call once, after the last id.
  SortedIds finish();

 private:
  bool grow_bitmap(std::int64_t id);
  void add_uncommon(std::int64_t id);
  void flush();
  void merge_integers(SortedIds& ids);
  void merge_strings(SortedIds& ids);

  IdKind kind_;
  std::filesystem::path stem_;
  std::size_t budget_;
  std::uint64_t num_bits_ = 0;
  std::vector<std::uint64_t> bits_;
  KeySet set_;
  StringSet strings_;
  std::unique_ptr<FileWriter> runs_;
  std::vector<std::int64_t> run_ends_;  // in bytes of the runs file
};

}  // namespace turbogr::data
