// Whole training steps on both devices: the same losses, and the same weights afterwards.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/on_device.h"
#include "turbogr/core/philox.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {
namespace {

constexpr std::int64_t kItems = 60;

data::Batch make_batch(std::uint64_t seed, std::int64_t items = kItems) {
  PhiloxStream random(seed);
  data::Batch batch;
  batch.offsets = {0};
  std::uint64_t sequence = 0;
  for (const std::int64_t length : {19, 1, 70, 8}) {
    std::int64_t time = 1'600'000'000;
    for (std::int64_t i = 0; i < length; ++i) {
      batch.items.push_back(
          static_cast<std::int64_t>(random.uniform() * static_cast<double>(items)));
      batch.targets.push_back(
          static_cast<std::int64_t>(random.uniform() * static_cast<double>(items)));
      batch.key_times.push_back(time);
      time += static_cast<std::int64_t>(random.uniform() * 5000);
      batch.query_times.push_back(time);
      batch.row_keys.push_back((sequence << 20) | static_cast<std::uint64_t>(i));
    }
    batch.offsets.push_back(batch.offsets.back() + length);
    batch.users.push_back(static_cast<std::int64_t>(sequence++));
  }
  return batch;
}

train::RetrievalOptions small_options(model::ModelKind kind, std::int64_t head_width) {
  train::RetrievalOptions options;
  options.model.kind = kind;
  options.model.layers = 2;
  options.model.heads = 2;
  options.model.dq = head_width;
  options.model.dv = head_width;
  options.model.width = 2 * head_width;
  options.model.feed_forward = 2 * head_width;
  options.model.max_length = 80;
  options.model.norm_length = 80;
  options.model.dropout = 0.2;
  options.memory.capacity = 128;
  options.negatives.count = 9;
  options.dense.rate = options.table.rate = 1e-3;
  options.clip = 0.5;
  return options;
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<float> items;
};

// With `refreshes` the model rounds its weights anew after every step.
template <class T>
Trained train(Device device, const train::RetrievalOptions& options, std::int64_t items = kItems,
              bool refreshes = false) {
  Context ctx({.device = device, .threads = 2, .deterministic = options.memory.deterministic});
  // Every third item is popular.
  std::vector<std::int64_t> counts(static_cast<std::size_t>(items), 1);
  for (std::size_t item = 0; item < counts.size(); item += 3) counts[item] = 5;
  train::RetrievalTrainer<T> trainer(ctx, options, items, counts);
  trainer.initialise(ctx);
  const std::vector<data::Batch> batches = {make_batch(1, items), make_batch(2, items)};
  Trained trained;
  const auto keep = [&](const train::StepResult& result) {
    EXPECT_TRUE(result.finite);
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  };
  for (std::size_t step = 0; step < 6; ++step) {
    trainer.submit(ctx, {&batches[step % 2], 1});
    if (refreshes) trainer.refresh(ctx);
    if (trainer.pending() == trainer.queue_length()) keep(trainer.finish(ctx));
  }
  while (trainer.pending() > 0) keep(trainer.finish(ctx));
  trained.items = test::vector_of<float>(ctx, trainer.table().weight_tensor());
  return trained;
}

void expect_close(const Trained& gpu, const Trained& cpu, double tolerance) {
  ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], tolerance * cpu.losses[i]) << "step " << i;
    EXPECT_NEAR(gpu.norms[i], cpu.norms[i], 10 * tolerance * cpu.norms[i]) << "step " << i;
  }
  EXPECT_LT(cpu.losses.back(), cpu.losses.front());
}

class CudaTrainer : public ::testing::TestWithParam<std::pair<model::ModelKind, std::int64_t>> {};

TEST_P(CudaTrainer, FollowsTheCpuInF32) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  for (const bool shared : {false, true}) {
    train::RetrievalOptions options = small_options(kind, head_width);
    options.negatives.shared = shared;
    const Trained cpu = train<float>(Device::kCpu, options);
    const Trained gpu = train<float>(Device::kCuda, options);
    expect_close(gpu, cpu, 1e-4);
    double largest = 0;
    for (std::size_t i = 0; i < cpu.items.size(); ++i) {
      largest = std::max(largest, std::abs(double(gpu.items[i]) - cpu.items[i]));
    }
    // AdamW moves a weight by up to the rate a step, whatever the gradient's size.
    EXPECT_LT(largest, 6 * 1e-3);
  }
}

// So many that every item is drawn: a GPU then draws for itself.
TEST_P(CudaTrainer, FollowsTheCpuWithManyDraws) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  for (const bool trained_only : {false, true}) {
    train::RetrievalOptions options = small_options(kind, head_width);
    options.negatives.count = 81;
    options.negatives.trained_only = trained_only;
    const Trained cpu = train<float>(Device::kCpu, options);
    expect_close(train<float>(Device::kCuda, options), cpu, 1e-4);
  }
}

TEST_P(CudaTrainer, FollowsTheCpuInBf16) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  const train::RetrievalOptions options = small_options(kind, head_width);
  expect_close(train<bf16>(Device::kCuda, options), train<float>(Device::kCpu, options), 0.02);
}

// Against the CPU's own products of rounded matrices: what is left is bf16's error.
TEST_P(CudaTrainer, FollowsTheCpuWithProductsInFp8) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  RetrievalOptions options = small_options(kind, head_width);
  options.memory.fp8 = true;
  if (head_width % 16 != 0) {
    EXPECT_NE(test::message_of([&] {
                train<bf16>(Device::kCuda, options);
              }).find("must be multiples of 16"),
              std::string::npos);
    return;
  }
  const Trained fp8 = train<bf16>(Device::kCuda, options);
  expect_close(fp8, train<float>(Device::kCpu, options), 0.02);
  options.memory.fp8 = false;
  const Trained without = train<bf16>(Device::kCuda, options);
  EXPECT_NE(fp8.losses, without.losses);
  expect_close(fp8, without, 0.05);
}

TEST_P(CudaTrainer, AnUpdateRoundsTheWeightsAsARefreshDoes) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  train::RetrievalOptions options = small_options(kind, head_width);
  options.memory.deterministic = true;
  const Trained updated = train<bf16>(Device::kCuda, options);
  const Trained refreshed = train<bf16>(Device::kCuda, options, kItems, /*refreshes=*/true);
  EXPECT_EQ(updated.losses, refreshed.losses);
  EXPECT_EQ(updated.items, refreshed.items);
}

TEST_P(CudaTrainer, ATableInHostMemoryChangesNoBit) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  train::RetrievalOptions options = small_options(kind, head_width);
  options.memory.deterministic = true;
  for (const auto optimiser :
       {embedding::SparseOptimiser::kAdamW, embedding::SparseOptimiser::kAdaGrad}) {
    options.table_optimiser = optimiser;
    options.table_in_host_memory = false;
    const Trained near = train<bf16>(Device::kCuda, options);
    options.table_in_host_memory = true;
    for (const double cache : {0.0, 0.4, 1.0}) {
      options.table_cache = cache;
      const Trained far = train<bf16>(Device::kCuda, options);
      EXPECT_EQ(near.losses, far.losses) << cache;
      EXPECT_EQ(near.items, far.items) << cache;
    }
  }
}

// Most rows of a step are not among those of the step before, some are: what comes over the link
// and what the last update brings.
TEST_P(CudaTrainer, RowsBroughtAheadChangeNoBit) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  constexpr std::int64_t kMany = 3000;
  train::RetrievalOptions options = small_options(kind, head_width);
  options.memory.deterministic = true;
  for (const bool shared : {false, true}) {
    options.negatives.shared = shared;
    for (const auto optimiser :
         {embedding::SparseOptimiser::kAdamW, embedding::SparseOptimiser::kAdaGrad}) {
      options.table_optimiser = optimiser;
      options.table_in_host_memory = false;
      const Trained near = train<bf16>(Device::kCuda, options, kMany);
      options.table_in_host_memory = true;
      for (const double cache : {0.0, 0.3}) {
        options.table_cache = cache;
        const Trained far = train<bf16>(Device::kCuda, options, kMany);
        EXPECT_EQ(near.losses, far.losses) << cache;
        EXPECT_EQ(near.norms, far.norms) << cache;
        EXPECT_EQ(near.items, far.items) << cache;
      }
    }
  }
}

TEST_P(CudaTrainer, FollowsTheCpuWithHalfNegatives) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  for (const bool shared : {false, true}) {
    for (const bool whole : {false, true}) {
      train::RetrievalOptions options = small_options(kind, head_width);
      options.negatives.shared = shared;
      options.negatives.half = true;
      options.negatives.half_table = whole;
      expect_close(train<float>(Device::kCuda, options), train<float>(Device::kCpu, options), 1e-4);
      options.table_in_host_memory = whole;
      expect_close(train<bf16>(Device::kCuda, options), train<float>(Device::kCpu, options), 0.02);
    }
  }
}

TEST_P(CudaTrainer, RecomputingChangesNoBit) {
  TGR_SKIP_WITHOUT_GPU();
  const auto [kind, head_width] = GetParam();
  train::RetrievalOptions options = small_options(kind, head_width);
  options.memory.deterministic = true;
  const Trained kept = train<bf16>(Device::kCuda, options);
  options.memory.recompute = true;
  const Trained made_again = train<bf16>(Device::kCuda, options);
  EXPECT_EQ(kept.losses, made_again.losses);
  EXPECT_EQ(kept.items, made_again.items);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaTrainer,
                         ::testing::Values(std::pair(model::ModelKind::kHstu, 64),
                                           std::pair(model::ModelKind::kHstu, 25),
                                           std::pair(model::ModelKind::kFuxi, 64),
                                           std::pair(model::ModelKind::kFuxi, 25)));

}  // namespace
}  // namespace turbogr::train
