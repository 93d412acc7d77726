#include "turbogr/embedding/touched_rows.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "turbogr/core/check.h"
#include "turbogr/core/host_memory.h"

namespace turbogr::embedding {
namespace {

constexpr std::int64_t kPiece = 1 << 14;

std::size_t groups_of_64(std::int64_t count) { return static_cast<std::size_t>((count + 63) / 64); }

// Sets bits; says whether there were none before. Looking first keeps a small catalogue's marks in
// every core's cache: stores would send them back and forth.
bool set_bits(std::uint64_t& word, std::uint64_t bits) {
  std::atomic_ref shared(word);
  if ((shared.load(std::memory_order_relaxed) & bits) == bits) return false;
  return shared.fetch_or(bits, std::memory_order_relaxed) == 0;
}

}  // namespace

TouchedRows::TouchedRows(std::int64_t rows, std::int64_t most) : rows_(rows) {
  TGR_CHECK(rows <= std::numeric_limits<std::int32_t>::max(), "a table of ", rows,
            " rows; at most 2^31 - 1 can be trained in one table");
  if (plans_only()) return;  // bytes_of counts what it would take
  blocks_.resize(groups_of_64(rows));
  used_.resize(groups_of_64(std::ssize(blocks_)));
  marked_.reserve(std::min(blocks_.size(), static_cast<std::size_t>(most)));
  ids_.reserve(static_cast<std::size_t>(std::min(rows, most)));
}

std::size_t TouchedRows::bytes_of(std::int64_t rows, std::int64_t most) {
  const std::size_t blocks = groups_of_64(rows);
  return blocks * sizeof(Block) +
         groups_of_64(static_cast<std::int64_t>(blocks)) * sizeof(std::uint64_t) +
         sizeof(std::int64_t) * (std::min(blocks, static_cast<std::size_t>(most)) +
                                 static_cast<std::size_t>(std::min(rows, most)));
}

void TouchedRows::clear() {
  for (std::size_t group = 0; group < used_.size(); ++group) {
    for (std::uint64_t left = used_[group]; left != 0; left &= left - 1) {
      blocks_[group * 64 + static_cast<std::size_t>(std::countr_zero(left))] = {};
    }
    used_[group] = 0;
  }
  marked_.clear();
  ids_.clear();
  num_first_ = 0;
}

template <std::uint64_t TouchedRows::Block::*kind>
void TouchedRows::mark_in(const Context& ctx, View<const std::int64_t, 1> ids) {
  parallel_ranges(ctx.pool(), ids.shape[0], kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = ids(i);
      TGR_CHECK(id >= 0 && id < rows_, "item id ", id, " at position ", i,
                " of the step; the item table has ", rows_, " rows");
      const std::int64_t block = id >> kBits;
      if (set_bits(blocks_[static_cast<std::size_t>(block)].*kind, bit_of(id))) {
        set_bits(used_[static_cast<std::size_t>(block) / 64], bit_of(block));
      }
    }
  });
}

void TouchedRows::mark(const Context& ctx, View<const std::int64_t, 1> ids) {
  mark_in<&Block::others>(ctx, ids);
}

void TouchedRows::mark_first(const Context& ctx, View<const std::int64_t, 1> ids) {
  mark_in<&Block::first>(ctx, ids);
}

void TouchedRows::mark_all() {
  const auto first_of = [](std::int64_t count) {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  };
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].others = first_of(rows_ - static_cast<std::int64_t>(i) * 64);
  }
  for (std::size_t i = 0; i < used_.size(); ++i) {
    used_[i] = first_of(std::ssize(blocks_) - static_cast<std::int64_t>(i) * 64);
  }
}

void TouchedRows::number(const Context& ctx) {
  std::int64_t num_others = 0;
  for (std::size_t group = 0; group < used_.size(); ++group) {
    for (std::uint64_t left = used_[group]; left != 0; left &= left - 1) {
      marked_.push_back(static_cast<std::int64_t>(group * 64) + std::countr_zero(left));
      Block& block = blocks_[static_cast<std::size_t>(marked_.back())];
      block.others &= ~block.first;
      block.first_place = static_cast<std::int32_t>(num_first_);
      block.others_place = static_cast<std::int32_t>(num_others);
      num_first_ += std::popcount(block.first);
      num_others += std::popcount(block.others);
    }
  }
  ids_.resize(static_cast<std::size_t>(num_first_ + num_others));
  parallel_ranges(
      ctx.pool(), std::ssize(marked_), kPiece / 64, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t at = marked_[static_cast<std::size_t>(i)];
          Block& block = blocks_[static_cast<std::size_t>(at)];
          block.others_place += static_cast<std::int32_t>(num_first_);
          const auto list = [&](std::uint64_t rows, std::int32_t place) {
            for (; rows != 0; rows &= rows - 1) {
              ids_[static_cast<std::size_t>(place++)] = (at << kBits) + std::countr_zero(rows);
            }
          };
          list(block.first, block.first_place);
          list(block.others, block.others_place);
        }
      });
}

template <class Place>
void TouchedRows::places_of(const Context& ctx, View<const std::int64_t, 1> ids,
                            View<Place, 1> places) const {
  parallel_ranges(ctx.pool(), ids.shape[0], kPiece, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) places(i) = static_cast<Place>(find(ids(i)));
  });
}

template void TouchedRows::places_of<std::int32_t>(const Context&, View<const std::int64_t, 1>,
                                                   View<std::int32_t, 1>) const;
template void TouchedRows::places_of<std::int64_t>(const Context&, View<const std::int64_t, 1>,
                                                   View<std::int64_t, 1>) const;

}  // namespace turbogr::embedding
