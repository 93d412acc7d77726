// What a run prints as its memory before it starts: no less than it takes, and not much more.
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>
#include <vector>

#include "tests/support/rank_batches.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/embedding/touched_rows.h"
#include "turbogr/model/model_options.h"
#include "turbogr/train/retrieval_trainer.h"

// Sanitizers bring an allocator of their own, which mallinfo2 knows nothing of.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasuring = false;
#else
constexpr bool kMeasuring = true;
#endif

namespace turbogr::train {
namespace {

using ops::NegativeSharing;

double bytes_in_use() {
  const struct mallinfo2 all = ::mallinfo2();
  return static_cast<double>(all.uordblks + all.hblkhd);
}

// Code of products of the same shape that an earlier case has made.
constexpr double kMadeBefore = 1.5e6;

struct Case {
  std::string name;
  train::NegativeOptions negatives;
  std::int64_t width = 32;
  std::int64_t layers = 1;
  std::int64_t items = 20'000;
  std::int64_t accumulate = 1;
  model::ModelKind kind = model::ModelKind::kHstu;
};

template <class T>
void expect_planned(const Case& each) {
  const test::StepShape shape = {.sequences = 40, .longest = 32, .items = each.items};
  const std::vector<data::Batch> batches(static_cast<std::size_t>(each.accumulate),
                                         test::share_of(shape, 0, 0, 1));
  train::RetrievalOptions options;
  options.model.kind = each.kind;
  options.model.layers = each.layers;
  options.model.width = each.width;
  options.model.heads = 2;
  options.model.dq = options.model.dv = each.width / 2;
  options.model.max_length = shape.longest;
  options.model.norm_length = static_cast<double>(shape.longest);
  options.memory.capacity = batches[0].num_tokens();
  options.negatives = each.negatives;
  options.accumulate = each.accumulate;
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(each.items), 1);

  const double before = bytes_in_use();
  const Context ctx({.threads = 2});
  train::RetrievalTrainer<T> trainer(ctx, options, each.items, counts);
  const auto planned = static_cast<double>(trainer.planned_bytes(ctx).host);
  trainer.initialise(ctx);
  for (int step = 0; step < 2; ++step) trainer.step(ctx, batches);
  const double taken = bytes_in_use() - before;
  EXPECT_GE(planned, taken) << each.name;
  EXPECT_LE(planned, 1.15 * taken + kMadeBefore) << each.name;
  EXPECT_LE(ctx.workspace().peak(), ctx.workspace().capacity()) << each.name;
}

// A table may be planned that this machine could not hold, nor a mark for each of its rows.
TEST(PlannedMemory, APlanTakesNoMarksOfRows) {
  if (!kMeasuring) GTEST_SKIP() << "the sanitizer's allocator does not say what is in use";
  const double before = bytes_in_use();
  const PlanOnly planning;
  const embedding::TouchedRows touched(2147483647, 100);
  EXPECT_EQ(touched.rows(), 2147483647);
  EXPECT_LT(bytes_in_use() - before, 1e6);
}

TEST(PlannedMemory, BoundsWhatATrainerTakes) {
  if (!kMeasuring) GTEST_SKIP() << "the sanitizer's allocator does not say what is in use";
  std::vector<Case> cases;
  for (const std::int64_t count : {1, 8, 128, 1024, 4096}) {
    cases.push_back({"own " + std::to_string(count), {.count = count}});
  }
  cases.push_back({"shared", {.count = 4096, .shared = true}});
  cases.push_back({"in_batch", {.kind = train::NegativeKind::kInBatch, .count = 64}});
  cases.push_back({"popularity", {.kind = train::NegativeKind::kPopularity, .count = 64}});
  cases.push_back({"half", {.count = 64, .half = true}});
  cases.push_back({"half table", {.count = 64, .half = true, .half_table = true}});
  cases.push_back(
      {"sharing", {.count = 64, .sharing = NegativeSharing::kEmbeddings, .sharing_factor = 4}});
  cases.push_back(
      {"logits", {.count = 64, .sharing = NegativeSharing::kLogits, .sharing_factor = 4}});
  cases.push_back({"wide", {.count = 1}, 512, 4, 100});
  cases.push_back({"narrow", {.count = 1}, 12, 8, 100});
  cases.push_back({"catalogue", {.count = 1}, 2, 1, 1'000'000});
  cases.push_back({"parts", {.count = 256}, 32, 1, 20'000, 4});
  cases.push_back({"fuxi", {.count = 16}, 64, 3, 1000, 1, model::ModelKind::kFuxi});
  for (const Case& each : cases) {
    expect_planned<float>(each);
    expect_planned<bf16>(each);
  }
}

}  // namespace
}  // namespace turbogr::train
