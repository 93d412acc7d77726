// Replicas that were trained apart become their mean when they settle: in every table, its state
// too, and once.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/row_source.h"

namespace turbogr::test {

// Weights, then the optimiser's state.
inline std::vector<std::vector<float>> values_of(embedding::ItemTable& table) {
  std::vector<std::vector<float>> all;
  for (Tensor* tensor : {&table.weight_tensor(), &table.first_moment(), &table.second_moment()}) {
    if (tensor->size() == 0) continue;  // the optimiser has no such state
    const auto* values = reinterpret_cast<const float*>(tensor->data());
    all.emplace_back(values, values + tensor->size());
  }
  return all;
}

// After steps without a mean, of groups of one rank: each holds all rows, in their order.
template <class T>
void expect_settles_on_mean(const Context& ctx, dist::Communicator& world,
                            embedding::RowSource<T>& rows, std::size_t tables) {
  std::vector<std::vector<std::vector<float>>> own;
  for (std::size_t t = 0; t < tables; ++t) own.push_back(values_of(rows.shard(t)));
  rows.settle(ctx);
  for (std::size_t t = 0; t < tables; ++t) {
    const std::vector<std::vector<float>> mean = values_of(rows.shard(t));
    ASSERT_EQ(mean.size(), own[t].size());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      EXPECT_NE(mean[i], own[t][i]) << "table " << t << ": the groups have learnt nothing of their "
                                    << "own, so nothing is tested";
      std::vector<float> sum = own[t][i];
      world.all_reduce(sum, dist::Reduce::kSum);
      const float share = 1.0f / static_cast<float>(world.size());
      for (std::size_t j = 0; j < sum.size(); ++j) {
        ASSERT_EQ(mean[i][j], sum[j] * share) << "table " << t << ", " << i << ' ' << j;
      }
    }
  }
  // Once: a third of three equal numbers need not be one of them.
  std::vector<std::vector<std::vector<float>>> before;
  for (std::size_t t = 0; t < tables; ++t) before.push_back(values_of(rows.shard(t)));
  rows.settle(ctx);
  for (std::size_t t = 0; t < tables; ++t) EXPECT_EQ(values_of(rows.shard(t)), before[t]) << t;
}

}  // namespace turbogr::test
