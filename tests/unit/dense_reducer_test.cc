#include "turbogr/train/dense_reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "turbogr/dist/communicator.h"

namespace turbogr::train {
namespace {

TEST(DenseReducer, SumsBucketsAsTheyFill) {
  for (const std::int64_t bucket_bytes : {1, 40, 1 << 20}) {
    dist::run_threads(3, [&](dist::Communicator& world) {
      const Context ctx({.threads = 1});
      std::vector<std::vector<float>> gradients = {std::vector<float>(7), std::vector<float>(1),
                                                   std::vector<float>(20), std::vector<float>(3)};
      std::vector<train::GradientBlock> blocks;
      for (auto& each : gradients) {
        blocks.push_back({each.data(), static_cast<std::int64_t>(each.size())});
      }
      train::DenseReducer reducer(ctx, world, blocks, bucket_bytes);
      EXPECT_EQ(reducer.num_buckets(), bucket_bytes == 1 ? 4u : bucket_bytes == 40 ? 2u : 1u);
      for (int round = 0; round < 2; ++round) {
        for (auto& each : gradients) {
          std::fill(each.begin(), each.end(), static_cast<float>(world.rank() + round));
        }
        reducer.ready(2);
        reducer.finish();
        for (const auto& each : gradients) {
          EXPECT_EQ(each, std::vector<float>(each.size(), static_cast<float>(3 + 3 * round)));
        }
      }
    });
  }
}

}  // namespace
}  // namespace turbogr::train
