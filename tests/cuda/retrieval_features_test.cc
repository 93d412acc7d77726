// Features of the retrieval task on both devices: the same losses, and the same rows afterwards.
#include "tests/support/retrieval_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tests/support/on_device.h"
#include "tests/support/rank_training.h"
#include "turbogr/eval/row_encoder.h"

namespace turbogr::train {
namespace {

const test::FeatureWorld& cuda_world() {
  static const test::FeatureWorld made(kShape.items);
  return made;
}

RetrievalOptions cuda_options(const test::FeatureWorld::Parts& parts) {
  RetrievalOptions options = smooth_options();
  options.dense.rate = options.table.rate = 1e-3;
  options.features = cuda_world().features(parts);
  options.most_sequences = kShape.sequences;
  options.model.max_length += options.features.num_prefix();
  for (embedding::TableOptions& table : options.features.tables) {
    table.optimiser = options.table_optimiser;
  }
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> tables;
  std::vector<float> candidates, tokens;  // encoded after training
};

template <class T>
Trained train_features(Device device, const RetrievalOptions& options) {
  const Context ctx({.device = device, .threads = 2});
  RetrievalTrainer<T> trainer(ctx, options, kShape.items);
  trainer.initialise(ctx);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    trainer.submit(ctx, batches_of(step, 0, 1));
    while (trainer.pending() > trainer.queue_length() - 1) {
      trained.losses.push_back(trainer.finish(ctx).loss);
    }
  }
  while (trainer.pending() > 0) trained.losses.push_back(trainer.finish(ctx).loss);
  for (std::size_t t = 0; t <= options.features.tables.size(); ++t) {
    trained.tables.push_back(test::vector_of<float>(ctx, trainer.rows().shard(t).weight_tensor()));
  }
  if constexpr (std::is_same_v<T, float>) {
    eval::RowEncoder<T> rows(ctx, trainer.rows(), options.features, 400);
    const std::vector<std::int64_t> ids = {3, 0, 49, 3};
    Tensor candidates(DType::kF32, {4, options.model.width}, device);
    rows.items(ctx, data::view_of(ids), candidates.view<T, 2>());
    trained.candidates = test::vector_of<float>(ctx, candidates);
    const data::Batch batch = batches_of(0, 0, 1)[0];
    const std::int64_t count =
        batch.num_tokens() + batch.num_sequences() * options.features.num_prefix();
    Tensor tokens(DType::kF32, {count, options.model.width}, device);
    rows.tokens(ctx, batch, tokens.view<T, 2>());
    trained.tokens = test::vector_of<float>(ctx, tokens);
  }
  return trained;
}

double gap(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return most;
}

TEST(CudaRetrievalFeatures, FollowTheCpu) {
  TGR_SKIP_WITHOUT_GPU();
  using Parts = test::FeatureWorld::Parts;
  for (const Parts& parts : {Parts{.events = false, .prefix = false}, Parts{.item_output = false},
                             Parts{.items = false, .events = false}, Parts{}}) {
    for (const StepSchedule schedule :
         {StepSchedule::kSerial, StepSchedule::kOverlap, StepSchedule::kSemiAsync}) {
      RetrievalOptions options = cuda_options(parts);
      options.ranks.schedule = schedule;
      const Trained cpu = train_features<float>(Device::kCpu, options);
      const Trained gpu = train_features<float>(Device::kCuda, options);
      for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
        EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-5 * cpu.losses[i]) << "step " << i;
      }
      for (std::size_t t = 0; t < cpu.tables.size(); ++t) {
        EXPECT_LT(gap(gpu.tables[t], cpu.tables[t]), 1e-5) << "table " << t;
      }
      EXPECT_LT(gap(gpu.candidates, cpu.candidates), 1e-5);
      EXPECT_LT(gap(gpu.tokens, cpu.tokens), 1e-5);
    }
    const RetrievalOptions options = cuda_options(parts);
    const Trained wide = train_features<float>(Device::kCpu, options);
    const Trained narrow = train_features<bf16>(Device::kCuda, options);
    for (std::size_t i = 0; i < wide.losses.size(); ++i) {
      EXPECT_NEAR(narrow.losses[i], wide.losses[i], 0.02 * wide.losses[i]) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace turbogr::train
