// Training steps with every way to draw and read negatives.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/core/philox.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {
namespace {

using data::Batch;
using ops::NegativeSharing;
using test::message_of;

constexpr std::int64_t kItems = 60;

Batch make_batch(std::uint64_t seed, const std::vector<std::int64_t>& lengths) {
  PhiloxStream random(seed);
  Batch batch;
  batch.offsets = {0};
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) {
      batch.items.push_back(static_cast<std::int64_t>(random.below(kItems)));
      // Popular items are small.
      batch.targets.push_back(static_cast<std::int64_t>(random.below(1 + random.below(kItems))));
      batch.row_keys.push_back((seed << 40) | static_cast<std::uint64_t>(batch.items.size()));
    }
    batch.offsets.push_back(batch.num_tokens());
    batch.users.push_back(0);
  }
  return batch;
}

train::RetrievalOptions options_of(const train::NegativeOptions& negatives,
                                   std::int64_t accumulate = 1) {
  train::RetrievalOptions options;
  options.model.layers = 1;
  options.model.width = 12;
  options.model.heads = 2;
  options.model.dq = options.model.dv = 6;
  options.model.max_length = 16;
  options.model.norm_length = 16;
  options.model.dropout = 0;
  options.model.bias = model::BiasKind::kPosition;
  options.memory.capacity = 64;
  options.negatives = negatives;
  options.accumulate = accumulate;
  options.dense.rate = options.table.rate = 0.01;
  return options;
}

std::vector<std::int64_t> counts() {
  std::vector<std::int64_t> all(kItems);
  for (std::int64_t i = 0; i < kItems; ++i) all[static_cast<std::size_t>(i)] = 2 * kItems - i;
  return all;
}

template <class T>
std::vector<double> losses(const train::NegativeOptions& negatives, int threads = 2,
                           const std::vector<std::vector<Batch>>& steps = {}) {
  const Context ctx({.threads = threads});
  train::RetrievalTrainer<T> trainer(ctx, options_of(negatives, 2), kItems, counts());
  trainer.initialise(ctx);
  std::vector<double> all;
  const std::vector<Batch> batches = {make_batch(1, {9, 16, 3}), make_batch(2, {4, 11})};
  for (int step = 0; step < 4; ++step) {
    const auto& now =
        steps.empty() ? batches : steps[static_cast<std::size_t>(step) % steps.size()];
    const train::StepResult result = trainer.step(ctx, now);
    EXPECT_TRUE(result.finite);
    all.push_back(result.loss);
  }
  return all;
}

struct Named {
  const char* name;
  train::NegativeOptions options;
};

std::vector<Named> every_way() {
  const train::NegativeOptions mixed = {
      .kind = train::NegativeKind::kMixed, .count = 8, .alpha = 1, .mix = {1, 1, 2}};
  train::NegativeOptions mixed_shared = mixed;
  mixed_shared.shared = true;
  return {
      {"uniform", {.count = 8}},
      {"uniform, shared", {.count = 8, .shared = true}},
      {"popularity", {.kind = train::NegativeKind::kPopularity, .count = 8}},
      {"in-batch", {.kind = train::NegativeKind::kInBatch, .count = 8}},
      {"in-batch, all of it",
       {.kind = train::NegativeKind::kInBatch, .count = 500, .shared = true}},
      {"mixed", mixed},
      {"mixed, shared", mixed_shared},
      {"logits", {.count = 4, .sharing = NegativeSharing::kLogits, .sharing_factor = 3}},
      {"embeddings", {.count = 4, .sharing = NegativeSharing::kEmbeddings, .sharing_factor = 3}},
      {"f16", {.count = 8, .half = true}},
      {"f16, shared", {.count = 8, .shared = true, .half = true}},
      {"f16 table", {.count = 8, .half = true, .half_table = true}},
      {"everything",
       {.kind = train::NegativeKind::kInBatch,
        .count = 8,
        .sharing = NegativeSharing::kLogits,
        .sharing_factor = 4,
        .half = true,
        .half_table = true}}};
}

TEST(RetrievalNegatives, EveryWayTrainsAndGivesTheSameBitsForAnyNumberOfThreads) {
  for (const Named& way : every_way()) {
    SCOPED_TRACE(way.name);
    const std::vector<double> one = losses<float>(way.options, 1);
    EXPECT_EQ(one, losses<float>(way.options, 3));
    EXPECT_LT(one.back(), one.front());
    const std::vector<double> narrow = losses<bf16>(way.options);
    EXPECT_NEAR(narrow.front(), one.front(), 0.05 * one.front());
  }
}

TEST(RetrievalNegatives, F16MovesALossByLittleAndItsTableByNothing) {
  for (const bool shared : {false, true}) {
    const std::vector<double> full = losses<float>({.count = 16, .shared = shared});
    const std::vector<double> half = losses<float>({.count = 16, .shared = shared, .half = true});
    const std::vector<double> table =
        losses<float>({.count = 16, .shared = shared, .half = true, .half_table = true});
    EXPECT_EQ(half, table);
    for (std::size_t i = 0; i < full.size(); ++i) {
      EXPECT_NEAR(half[i], full[i], 2e-3 * full[i]);
      EXPECT_NE(half[i], full[i]);
    }
  }
}

TEST(RetrievalNegatives, ALoadedTableReachesItsF16Copy) {
  const Context ctx({.threads = 2});
  const Batch batch = make_batch(3, {9, 7});
  const auto loss_after_load = [&](bool half_table) {
    train::RetrievalTrainer<float> trainer(
        ctx, options_of({.count = 8, .half = true, .half_table = half_table}), kItems);
    trainer.initialise(ctx);
    Tensor& weights = trainer.table().weight_tensor();
    for (std::int64_t i = 0; i < weights.size(); ++i) {
      reinterpret_cast<float*>(weights.data())[i] = std::sin(static_cast<float>(i));
    }
    trainer.refresh(ctx);
    return trainer.step(ctx, {&batch, 1}).loss;
  };
  EXPECT_EQ(loss_after_load(false), loss_after_load(true));
}

// With uniform counts the corrections vanish and in-batch draws are all that differs; with skewed
// ones a loss without them is another loss.
TEST(RetrievalNegatives, CorrectionsReachTheLoss) {
  train::NegativeOptions popular = {
      .kind = train::NegativeKind::kPopularity, .count = 16, .alpha = 1};
  const std::vector<double> corrected = losses<float>(popular);
  popular.correction = false;
  EXPECT_NE(corrected, losses<float>(popular));
  popular.alpha = 0;
  popular.correction = true;
  EXPECT_EQ(losses<float>(popular), losses<float>({.count = 16}));
}

TEST(RetrievalNegatives, InBatchDrawsFromAllPartsOfAStep) {
  // The first part alone has one distinct positive, which masks every draw from it.
  Batch one = make_batch(5, {6});
  for (std::int64_t& target : one.targets) target = 7;
  Batch other = make_batch(6, {6});
  const train::NegativeOptions in_batch = {.kind = train::NegativeKind::kInBatch, .count = 8};
  EXPECT_EQ(losses<float>(in_batch, 2, {{one}}).front(), 0);
  const Context ctx({.threads = 2});
  train::RetrievalTrainer<float> trainer(ctx, options_of(in_batch, 2), kItems, counts());
  trainer.initialise(ctx);
  for (std::int64_t& target : other.targets) target = 9;
  const std::vector<Batch> parts = {one, other};
  EXPECT_GT(trainer.step(ctx, parts).loss, 0);
}

TEST(RetrievalNegatives, AskForCountsWhereTheyGoByThem) {
  const Context ctx({.threads = 1});
  EXPECT_EQ(message_of([&] {
              train::RetrievalTrainer<float>(
                  ctx, options_of({.kind = train::NegativeKind::kPopularity}), kItems);
            }),
            "popularity of 0 items for a catalogue of 60; give each item's count");
}

}  // namespace
}  // namespace turbogr::train
