// Which rank of a group holds which row of a table, and where.
#pragma once

#include <cstdint>
#include <string_view>

#include "turbogr/ops/rows/row_keys.h"

namespace turbogr::embedding {

// Round robin deals neighbouring ids to neighbouring ranks; hash stirs them first, for ids whose
// popularity follows their number.
enum class Placement : std::uint8_t { kRoundRobin, kHash };
Placement placement_from_name(std::string_view name);  // round_robin or hash
std::string_view name_of(Placement placement);

// Of a table whose ids are 0 to rows - 1. Shards differ by one row at most.
class Sharding {
 public:
  Sharding(std::int64_t rows, int shards, Placement placement);

  std::int64_t rows() const { return rows_; }
  Placement placement() const { return placement_; }
  int shards() const { return shards_; }
  int shard_of(std::int64_t id) const;
  std::int64_t row_of(std::int64_t id) const;
  std::int64_t rows_of(int shard) const;
  std::int64_t id_of(int shard, std::int64_t row) const;
  // The same, for those who round rows by chance: keys are ids.
  ops::RowKeys keys_of(int shard, std::uint64_t seed) const;

 private:
  std::int64_t stirred(std::int64_t id) const;
  std::int64_t first_of(int shard) const;

  std::int64_t rows_;
  int shards_;
  Placement placement_;
  // Hash: id * factor_ mod rows_ is a permutation, undone by inverse_, and shards are ranges of it.
  std::int64_t factor_ = 1;
  std::int64_t inverse_ = 1;
};

}  // namespace turbogr::embedding
