// A table in one piece, from the parts that ranks hold.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/tensor.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/row_source.h"

namespace turbogr::test {

// Of `part`, a tensor of this rank's part of a table with a row a row of it. Collective.
template <class T>
std::vector<float> whole_of(const Context& ctx, embedding::RowSource<T>& rows, const Tensor& part,
                            std::size_t table = 0) {
  Tensor own = to_host(ctx, part);
  if (own.dtype() != DType::kF32) {
    Tensor wide(DType::kF32, own.shape());
    embedding::with_weights(own, [&](auto weights) {
      for (std::int64_t i = 0; i < own.size(); ++i) {
        reinterpret_cast<float*>(wide.data())[i] = convert<float>(weights.data[i]);
      }
    });
    own = std::move(wide);
  }
  const embedding::Sharding& sharding = rows.sharding(table);
  const auto width = static_cast<std::size_t>(part.shape().size() == 2 ? part.shape()[1] : 1);
  const std::size_t row_bytes = width * sizeof(float);
  std::vector<std::int64_t> bytes;
  for (int shard = 0; shard < sharding.shards(); ++shard) {
    bytes.push_back(sharding.rows_of(shard) * static_cast<std::int64_t>(row_bytes));
  }
  const std::size_t all = static_cast<std::size_t>(sharding.rows()) * width;
  std::vector<float> joined(all), whole(all);
  if (rows.group() == nullptr) {
    std::memcpy(joined.data(), own.data(), own.bytes());
  } else {
    rows.group()->all_gather(own.data(), {joined.data(), bytes});
  }
  const float* next = joined.data();
  for (int shard = 0; shard < sharding.shards(); ++shard) {
    for (std::int64_t row = 0; row < sharding.rows_of(shard); ++row, next += width) {
      std::memcpy(&whole[static_cast<std::size_t>(sharding.id_of(shard, row)) * width], next,
                  row_bytes);
    }
  }
  return whole;
}

}  // namespace turbogr::test
