// Negatives drawn with replacement, each a pure function of (seed, step, row key, its place in the
// set): neither threads nor ranks nor a device change a draw. A draw may be the positive; the loss
// masks it.
//
//   draw_negatives(ctx, {.catalogue = num_items, .uniform = 128}, {seed, step}, row_keys, ids);
//
// N tokens, R negatives a token, V items in the catalogue.
#pragma once

#include <cstdint>

#include "turbogr/core/context.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/alias_table.h"

namespace turbogr::ops {

struct NegativeKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  // below 2^39
};

// Where the draws of a set come from; it is made of so many of each kind, in this order.
struct NegativeSource {
  std::int64_t catalogue = 0;              // V
  View<const AliasSlot, 1> alias;          // [V], for `popular`
  View<const std::int64_t, 1> candidates;  // for `in_batch`: the items to choose from
  View<const std::int64_t, 1> known;       // for `uniform`: the same; empty: the catalogue
  std::int64_t uniform = 0;
  std::int64_t popular = 0;
  std::int64_t in_batch = 0;

  TGR_HD std::int64_t count() const { return uniform + popular + in_batch; }
};

// Where the bits of places 2 * pair and 2 * pair + 1 are drawn, beside the row's key.
TGR_HD inline std::uint64_t negative_counter(const NegativeKey& key, std::int64_t pair) {
  // Keeps the streams of negatives apart from dropout's, which share the seed.
  constexpr std::uint64_t kStream = std::uint64_t{1} << 63;
  return kStream | (key.step << 24) | static_cast<std::uint64_t>(pair);
}

// The random bits of two neighbouring places of a set, the even one first.
struct NegativeBits {
  std::uint64_t bits[2];
};
TGR_HD inline NegativeBits negative_bits(const NegativeKey& key, std::uint64_t row_key,
                                         std::int64_t pair) {
  const auto block = philox(key.seed, row_key, negative_counter(key, pair));
  return {{(std::uint64_t{block[0]} << 32) | block[1], (std::uint64_t{block[2]} << 32) | block[3]}};
}

TGR_HD inline std::int64_t draw_from_alias(const AliasSlot* slots, std::int64_t count,
                                           std::uint64_t bits) {
  // The whole part of bits * count / 2^64 is the slot, the fraction decides within it.
  const WideWord place = static_cast<WideWord>(bits) * static_cast<std::uint64_t>(count);
  const auto slot = static_cast<std::int64_t>(place >> 64);
  const auto fraction = static_cast<std::uint32_t>(static_cast<std::uint64_t>(place) >> 32);
  return fraction < slots[slot].keep ? slot : slots[slot].other;
}

// The item at place r, given its bits.
TGR_HD inline std::int64_t draw_negative(const NegativeSource& source, std::int64_t r,
                                         std::uint64_t bits) {
  if (r < source.uniform) {
    const std::int64_t known = source.known.shape[0];
    const auto at = static_cast<std::int64_t>(
        uniform_below(bits, static_cast<std::uint64_t>(known > 0 ? known : source.catalogue)));
    return known > 0 ? source.known.data[at] : at;
  }
  if (r < source.uniform + source.popular) {
    return draw_from_alias(source.alias.data, source.catalogue, bits);
  }
  const auto count = static_cast<std::uint64_t>(source.candidates.shape[0]);
  return source.candidates.data[uniform_below(bits, count)];
}

// ids [N, R], R = source.count(); row_keys [N] tell tokens apart. Equal keys get equal sets.
void draw_negatives(const Context& ctx, const NegativeSource& source, const NegativeKey& key,
                    View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids);

// The same draws where all are uniform, for those who want rows and not ids: in place of candidate
// c, an item of the catalogue or of `known`, stands place_of(c). On either device.
//   place_of [C], below 2^31        places [N, R]
void draw_places(const Context& ctx, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 View<const std::int32_t, 1> place_of, View<std::int32_t, 2> places);

}  // namespace turbogr::ops
