// Which rows of a table a step touches: the distinct ids and each id's place among them, ascending,
// those marked as first before the others. Two bits a row and counts for every 64 of them, reached
// through a summary of those in use: the work of a step goes with its ids, not with the table.
//
//   touched.clear();
//   touched.mark(ctx, items); touched.mark(ctx, negatives); touched.mark_first(ctx, targets);
//   touched.number(ctx);                       // touched.ids() is ready
//   touched.places_of(ctx, negatives, places); // rows of a compact matrix
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::embedding {

class TouchedRows {
 public:
  // At most `most` of the table's rows are touched at a time.
  explicit TouchedRows(std::int64_t rows,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  static std::size_t bytes_of(std::int64_t rows, std::int64_t most);  // of host memory

  void clear();
  // Throws on an id outside the table, naming it and its position.
  void mark(const Context& ctx, View<const std::int64_t, 1> ids);
  void mark_first(const Context& ctx, View<const std::int64_t, 1> ids);
  void mark_all();  // the table's rows
  void number(const Context& ctx);
  std::int64_t rows() const { return rows_; }  // of the table
  std::int64_t num_first() const { return num_first_; }

  View<const std::int64_t, 1> ids() const {
    return {ids_.data(), {static_cast<std::int64_t>(ids_.size())}};
  }
  // The place of one id, -1 where it is not among them.
  std::int32_t find(std::int64_t id) const {
    const Block& block = blocks_[static_cast<std::size_t>(id >> kBits)];
    const std::uint64_t bit = bit_of(id);
    if ((block.first & bit) != 0) {
      return block.first_place + ones_in(block.first & (bit - 1));
    }
    if ((block.others & bit) == 0) return -1;
    return block.others_place + ones_in(block.others & (bit - 1));
  }
  // All of them marked before.
  template <class Place>  // int32 or int64
  void places_of(const Context& ctx, View<const std::int64_t, 1> ids, View<Place, 1> places) const;

 private:
  static constexpr int kBits = 6;
  // 64 rows. While rows are marked, `others` has them all; `number` takes the first ones out.
  struct Block {
    std::uint64_t first = 0, others = 0;
    std::int32_t first_place = 0, others_place = 0;  // of each kind's lowest row
  };
  static std::uint64_t bit_of(std::int64_t id) { return std::uint64_t{1} << (id & 63); }
  // std::popcount is a call into a table where the compiler may not use the processor's own.
  static std::int32_t ones_in(std::uint64_t bits) {
    bits -= (bits >> 1) & 0x5555555555555555u;                                  // of pairs
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);  // of fours
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;                          // of bytes
    return static_cast<std::int32_t>((bits * 0x0101010101010101u) >> 56);
  }
  template <std::uint64_t Block::*kind>
  void mark_in(const Context& ctx, View<const std::int64_t, 1> ids);

  std::int64_t rows_;
  std::vector<Block> blocks_;
  std::vector<std::uint64_t> used_;   // a bit a block
  std::vector<std::int64_t> marked_;  // blocks in use, ascending
  std::vector<std::int64_t> ids_;
  std::int64_t num_first_ = 0;
};

}  // namespace turbogr::embedding
