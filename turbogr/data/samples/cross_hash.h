// Crosses of features: several keys become one id of a table by XXH64 (Yann Collet's), so that any
// program that knows the hash finds the same row. Of up to three keys: their bytes, little-endian
// and end to end, stay below 32, where the hash has no stripes.
//
//   cross_row(std::array<std::int64_t, 2>{user, artist}, rows)
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "turbogr/core/check.h"

namespace turbogr::data {

constexpr std::uint64_t cross_hash(std::span<const std::int64_t> keys, std::uint64_t salt = 0) {
  constexpr std::uint64_t kPrime1 = 11400714785074694791u;
  constexpr std::uint64_t kPrime2 = 14029467366897019727u;
  constexpr std::uint64_t kPrime3 = 1609587929392839161u;
  constexpr std::uint64_t kPrime4 = 9650029242287828579u;
  constexpr std::uint64_t kPrime5 = 2870177450012600261u;
  TGR_CHECK(!keys.empty() && keys.size() <= 3, "a cross of ", keys.size(),
            " keys; it can have 1 to 3");
  std::uint64_t hash = salt + kPrime5 + 8 * keys.size();
  for (const std::int64_t key : keys) {
    hash ^= std::rotl(static_cast<std::uint64_t>(key) * kPrime2, 31) * kPrime1;
    hash = std::rotl(hash, 27) * kPrime1 + kPrime4;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

// Of a table of `rows` rows.
constexpr std::int64_t cross_row(std::span<const std::int64_t> keys, std::int64_t rows,
                                 std::uint64_t salt = 0) {
  TGR_CHECK(rows > 0, "a cross into a table of ", rows, " rows; it needs at least 1");
  return static_cast<std::int64_t>(cross_hash(keys, salt) % static_cast<std::uint64_t>(rows));
}

}  // namespace turbogr::data
