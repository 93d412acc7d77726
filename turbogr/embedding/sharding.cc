#include "turbogr/embedding/sharding.h"

#include <algorithm>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::embedding {
namespace {

std::int64_t product_modulo(std::int64_t a, std::int64_t b, std::int64_t modulus) {
  return static_cast<std::int64_t>(static_cast<WideWord>(a) * static_cast<WideWord>(b) %
                                   static_cast<WideWord>(modulus));
}

// x with a x = 1 modulo m, by Euclid's algorithm.
std::int64_t inverse_modulo(std::int64_t a, std::int64_t m) {
  std::int64_t r0 = m, r1 = a, t0 = 0, t1 = 1;
  while (r1 != 0) {
    const std::int64_t quotient = r0 / r1;
    r0 -= quotient * r1;
    t0 -= quotient * t1;
    std::swap(r0, r1);
    std::swap(t0, t1);
  }
  return t0 < 0 ? t0 + m : t0;
}

}  // namespace

Placement placement_from_name(std::string_view name) {
  if (name == "round_robin") return Placement::kRoundRobin;
  TGR_CHECK(name == "hash", "unknown placement '", name, "' of rows; use round_robin or hash");
  return Placement::kHash;
}

std::string_view name_of(Placement placement) {
  return placement == Placement::kHash ? "hash" : "round_robin";
}

Sharding::Sharding(std::int64_t rows, int shards, Placement placement)
    : rows_(rows), shards_(shards), placement_(placement) {
  TGR_CHECK(rows >= 0 && shards >= 1, "a table of ", rows, " rows in ", shards, " shards");
  if (placement == Placement::kRoundRobin || rows < 3) return;
  // A golden share of the rows keeps neighbours far apart, whatever the number of shards.
  factor_ = std::max<std::int64_t>(
      2, static_cast<std::int64_t>(0.6180339887498949 * static_cast<double>(rows)));
  while (std::gcd(factor_, rows) != 1) ++factor_;
  factor_ %= rows;
  inverse_ = inverse_modulo(factor_, rows);
}

std::int64_t Sharding::stirred(std::int64_t id) const {
  return factor_ == 1 ? id : product_modulo(id, factor_, rows_);
}

std::int64_t Sharding::first_of(int shard) const { return (shard * rows_ + shards_ - 1) / shards_; }

int Sharding::shard_of(std::int64_t id) const {
  if (placement_ == Placement::kRoundRobin) return static_cast<int>(id % shards_);
  return static_cast<int>(stirred(id) * shards_ / rows_);
}

std::int64_t Sharding::row_of(std::int64_t id) const {
  if (placement_ == Placement::kRoundRobin) return id / shards_;
  return stirred(id) - first_of(shard_of(id));
}

std::int64_t Sharding::rows_of(int shard) const {
  if (placement_ == Placement::kRoundRobin) return (rows_ - shard + shards_ - 1) / shards_;
  return first_of(shard + 1) - first_of(shard);
}

std::int64_t Sharding::id_of(int shard, std::int64_t row) const {
  if (placement_ == Placement::kRoundRobin) return row * shards_ + shard;
  const std::int64_t place = first_of(shard) + row;
  return inverse_ == 1 ? place : product_modulo(place, inverse_, rows_);
}

ops::RowKeys Sharding::keys_of(int shard, std::uint64_t seed) const {
  if (placement_ == Placement::kRoundRobin) {
    return {.first = shard, .stride = shards_, .seed = seed};
  }
  if (factor_ == 1) return {.first = first_of(shard), .seed = seed};
  return {.first = first_of(shard), .factor = inverse_, .modulus = rows_, .seed = seed};
}

}  // namespace turbogr::embedding
