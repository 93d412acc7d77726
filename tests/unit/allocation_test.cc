// A step that has run once allocates nothing. This binary puts a counter in front of malloc, which
// operator new and every library call too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "bench/op_case.h"
#include "tests/support/data.h"
#include "tests/support/rank_batches.h"
#include "tests/support/ranking_training.h"
#include "tests/support/retrieval_features.h"
#include "tests/support/softmax_case.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/eval/retrieval_features.h"
#include "turbogr/eval/row_encoder.h"
#include "turbogr/eval/target_ranks.h"
#include "turbogr/eval/top_items.h"
#include "turbogr/model/buffers.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/model.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/ops/dense/linear.h"
#include "turbogr/ops/dense/silu.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/half_rows.h"
#include "turbogr/ops/rows/top_k.h"
#include "turbogr/ops/rows/update.h"
#include "turbogr/train/negative_sampler.h"
#include "turbogr/train/ranking_trainer.h"
#include "turbogr/train/token_order.h"

// Sanitizers bring an allocator of their own that must not be replaced.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCounting = false;
std::atomic<std::int64_t> num_allocations{0};
std::atomic<std::size_t> largest_allocation{0};
#else
constexpr bool kCounting = true;
std::atomic<std::int64_t> num_allocations{0};
std::atomic<std::size_t> largest_allocation{0};

void count_allocation(std::size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  std::size_t seen = largest_allocation.load(std::memory_order_relaxed);
  while (size > seen && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
}

extern "C" {
// glibc's own, under the names it keeps for those who wrap them.
void* __libc_malloc(std::size_t size);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);        // NOLINT
void* __libc_realloc(void* old, std::size_t size);               // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT

void* malloc(std::size_t size) {
  count_allocation(size);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  count_allocation(count * size);
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  count_allocation(size);
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  count_allocation(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  *result = memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
}
#endif

namespace turbogr {
namespace {

using test::random_tensor;
using test::view_of;

// Allocations on any thread during a warm call: the fewest of several, since on a busy machine a
// worker may get its first piece of work, and make what a thread makes once, only in a later call.
std::int64_t warm_allocations(const std::function<void()>& call) {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  call();
  for (int repeat = 0; repeat < 4; ++repeat) {
    const std::int64_t before = num_allocations;
    call();
    fewest = std::min<std::int64_t>(fewest, num_allocations - before);
  }
  return fewest;
}

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
    if (!kCounting) GTEST_SKIP() << "a sanitizer's allocator cannot be counted";
  }
};

TEST_F(Allocation, IsCountedOnEveryThread) {
  ThreadPool pool(3);
  const std::int64_t seen = warm_allocations([&] {
    parallel_for(pool, 10, [](std::int64_t index, int) {
      std::vector<int> some(static_cast<std::size_t>(index + 1));
      void* volatile kept = some.data();
      std::free(std::malloc(kept == nullptr ? 1 : 2));
    });
  });
  EXPECT_GE(seen, 10);
}

// The cases `turbogr bench ops` measures cover the operators that have a baseline.
TEST_F(Allocation, IsNotMadeByAWarmOperator) {
  const Context ctx({.threads = 3});
  const bench::OpProblem problem{.lengths = {70, 1, 130, 99},
                                 .max_length = 200,
                                 .heads = 2,
                                 .head_dim = 20,
                                 .table_rows = 2000};
  for (const bench::OpFamily& family : bench::all_families()) {
    if (family.op == "linear") continue;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bench::OpCase& op : family.make(ctx, problem, dtype)) {
        EXPECT_EQ(warm_allocations(op.run), 0)
            << op.op << " " << op.direction << " " << name_of(op.dtype);
      }
    }
  }
}

template <class T>
void check_other_operators() {
  const Context ctx({.threads = 3, .workspace_bytes = 1 << 22});
  constexpr std::int64_t kRows = 300;
  constexpr std::int64_t kCols = 40;
  const auto matrix = [](std::uint64_t seed) { return random_tensor<T>({kRows, kCols}, seed); };
  const Tensor x = matrix(1);
  const Tensor dy = matrix(2);
  Tensor y = matrix(3);
  const Rows<const T> xs = std::as_const(x).template view<T, 2>();
  const Rows<const T> dys = std::as_const(dy).template view<T, 2>();
  const Rows<T> ys = y.view<T, 2>();
  const auto nothing = [](const char* name, const std::function<void()>& call) {
    EXPECT_EQ(warm_allocations(call), 0) << name << " " << name_of(dtype_of<T>());
  };

  nothing("silu", [&] { ops::silu<T>(ctx, xs, ys); });
  nothing("silu_backward", [&] { ops::silu_backward<T>(ctx, xs, dys, ys); });

  std::vector<std::int64_t> ids(kRows);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * i % 97);
  std::vector<std::int64_t> unique(kRows), groups(kRows + 1), ranks(kRows);
  std::vector<std::int32_t> positions(kRows), inverse(kRows);
  const ops::DedupOutput output = {view_of(unique), view_of(groups), view_of(positions),
                                   view_of(inverse)};
  const std::int64_t num_unique = ops::dedup_ids(ctx, view_of(ids), output);
  Tensor table = random_tensor<Accum<T>>({100, kCols}, 5);
  nothing("scatter_add_rows", [&] {
    ops::scatter_add_rows<T>(ctx, dys, output.first(num_unique), table.view<Accum<T>, 2>());
  });
  ctx.workspace().reserve(ops::top_k_workspace_bytes(ctx, kRows, kCols, 0, 0));
  nothing("rank_of_target", [&] {
    ops::rank_of_target<T>(ctx, {.query = xs, .table = xs, .target = view_of(ids)}, view_of(ranks));
  });
}

TEST_F(Allocation, IsNotMadeByTheOtherOperators) {
  check_other_operators<float>();
  check_other_operators<bf16>();
}

template <class T>
void check_softmax(const test::SoftmaxShape& shape, const ops::SoftmaxOptions& options) {
  const test::SoftmaxCase<T> softmax(shape, options);
  const Context ctx({.threads = 3});
  ctx.workspace().reserve(softmax.workspace_bytes(ctx));
  Tensor loss(DType::kF32, {shape.tokens}), saved(DType::kF32, {shape.tokens});
  Tensor dquery(dtype_of<T>(), {shape.tokens, shape.width});
  Tensor ditems(DType::kF32, {shape.items, shape.width});
  const ops::SampledSoftmaxInputs<T> inputs = softmax.inputs();
  EXPECT_EQ(warm_allocations([&] {
              ops::sampled_softmax<T>(ctx, inputs, options,
                                      {loss.view<float, 1>(), saved.view<float, 1>()});
              ops::sampled_softmax_backward<T>(ctx, inputs, options,
                                               std::as_const(saved).view<float, 1>(),
                                               softmax.dloss.template view<float, 1>(),
                                               dquery.view<T, 2>(), ditems.view<float, 2>());
            }),
            0);
}

TEST_F(Allocation, IsNotMadeByNegatives) {
  using ops::NegativeSharing;
  test::SoftmaxShape shape = {.tokens = 90, .items = 50, .width = 20, .negatives = 30};
  for (const bool half : {false, true}) {
    shape.half = half;
    for (const auto sharing :
         {NegativeSharing::kNone, NegativeSharing::kLogits, NegativeSharing::kEmbeddings}) {
      check_softmax<float>(shape, {.sharing = sharing, .sharing_factor = 3});
      check_softmax<bf16>(shape, {.sharing = sharing, .sharing_factor = 3});
    }
  }

  const Context ctx({.threads = 3});
  const std::vector<std::int64_t> counts(1000, 3);
  std::vector<std::int64_t> targets(200), ids(200 * 8);
  std::vector<std::uint64_t> keys(200);
  std::vector<std::int32_t> order(200);
  std::vector<float> corrections(200);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = static_cast<std::int64_t>(i * i % 997);
    keys[i] = i;
  }
  for (const bool shared : {false, true}) {
    train::NegativeSampler sampler(
        {.kind = train::NegativeKind::kMixed, .count = 8, .shared = shared, .mix = {1, 1, 2}}, 1000,
        counts);
    sampler.reserve_positives(200);
    train::TokenOrder shuffle;
    shuffle.reserve(200);
    EXPECT_EQ(warm_allocations([&] {
                sampler.begin_step({});
                sampler.add_positives(view_of(std::as_const(targets)));
                sampler.finish_positives();
                if (shared) {
                  sampler.draw_shared(ctx, 0, {ids.data(), {8}});
                } else {
                  sampler.draw_own(ctx, {keys.data(), {200}}, {ids.data(), {200, 8}});
                }
                sampler.corrections(ctx, view_of(std::as_const(targets)), view_of(corrections));
                shuffle.shuffle({}, {keys.data(), {200}}, view_of(order));
              }),
              0);
  }
  const Tensor table = random_tensor<float>({1000, 20}, 7);
  Tensor values(DType::kF16, {200, 20}), scale(DType::kF32, {200});
  EXPECT_EQ(warm_allocations([&] {
              ops::gather_half_rows(ctx, table.view<float, 2>(), view_of(std::as_const(targets)),
                                    {values.view<f16, 2>(), scale.view<float, 1>()});
            }),
            0);
}

// Candidates are scored where they lie: whatever the table's format and the model's, and however
// many are chosen, nothing of a table's size is made.
template <class T>
void check_candidates(DType dtype) {
  constexpr std::int64_t kRows = 60000, kWidth = 64;
  const Context ctx({.threads = 2});
  embedding::LocalRows<T> source({{.rows = kRows, .width = kWidth, .dtype = dtype}}, Device::kCpu);
  const eval::RetrievalFeatures none;
  eval::RowEncoder<T> rows(ctx, source, none, 16);
  std::vector<std::int64_t> chosen(kRows / 2);
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<std::int64_t>(2 * i);
  largest_allocation = 0;
  const eval::TargetRanks<T> ranks(ctx, rows);
  const eval::TopItems<T> all(ctx, rows), some(ctx, rows, chosen);
  EXPECT_GE(largest_allocation, chosen.size() * sizeof(float));  // inverse norms: it counts
  EXPECT_LE(largest_allocation, std::size_t{4096} * kWidth * sizeof(T) + 4096) << name_of(dtype);
}

TEST_F(Allocation, OfCandidatesIsNoCopyOfThem) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    check_candidates<float>(dtype);
    check_candidates<bf16>(dtype);
  }
}

TEST_F(Allocation, IsNotMadeByAnUpdate) {
  const Context ctx({.threads = 3, .workspace_bytes = 1 << 16});
  std::vector<Tensor> parts;
  for (std::uint64_t i = 0; i < 4; ++i) parts.push_back(random_tensor<float>({9000}, i));
  const auto data = [&](std::size_t i) { return parts[i].view<float, 1>().data; };
  const ops::UpdateSlices slices(ctx, {{data(0), data(1), data(2), data(3), 9000}});
  std::memset(data(3), 0, parts[3].bytes());
  double squares = 0;
  EXPECT_EQ(warm_allocations([&] { ops::adamw(ctx, slices, {}, nullptr); }), 0);
  EXPECT_EQ(warm_allocations([&] { ops::squared_sum(ctx, slices, &squares); }), 0);

  using embedding::SparseOptimiser;
  const std::vector<std::int64_t> ids = {3, 5, 90};
  const Tensor gradient = random_tensor<float>({3, 24}, 8);
  for (const auto kind :
       {SparseOptimiser::kAdamW, SparseOptimiser::kAdaGrad, SparseOptimiser::kSgd}) {
    embedding::ItemTable table(100, 24, kind);
    table.initialise(ctx, 1, 0.02);
    EXPECT_EQ(warm_allocations([&] {
                table.update(ctx, {ids.data(), {3}}, gradient.view<float, 2>(), {});
              }),
              0);
  }
}

// Handles of operands and a map of arguments, made and freed inside oneDNN for each tile's product.
constexpr std::int64_t kAllocationsPerProduct = 26;

// One product with a weight, forward and backward, for `rows` rows.
template <class T>
std::int64_t linear_allocations(const Context& ctx, std::int64_t rows, std::int64_t inputs,
                                std::int64_t outputs) {
  const Tensor x = random_tensor<T>({rows, inputs}, 1);
  const Tensor w = random_tensor<T>({inputs, outputs}, 2);
  const Tensor dy = random_tensor<T>({rows, outputs}, 3);
  Tensor y(dtype_of<T>(), {rows, outputs});
  Tensor dx(dtype_of<T>(), {rows, inputs});
  Tensor dw(DType::kF32, {inputs, outputs});
  ops::PackedWeight<T> weight(ctx, inputs, outputs);
  ctx.workspace().reserve(std::max(ops::linear_workspace_bytes(ctx, weight),
                                   ops::linear_backward_workspace_bytes(ctx, weight, rows)));
  weight.pack(ctx, w.view<T, 2>());
  return warm_allocations([&] {
    ops::linear<T>(ctx, x.view<T, 2>(), weight, {}, y.view<T, 2>());
    ops::linear_backward<T>(ctx, x.view<T, 2>(), weight, dy.view<T, 2>(), {},
                            {.dx = dx.view<T, 2>(), .dw = dw.view<float, 2>()});
  });
}

TEST_F(Allocation, IsNotMadeByProductsOfSmallWeights) {
  const Context ctx({.threads = 2});
  EXPECT_EQ(linear_allocations<float>(ctx, 1000, 100, 300), 0);
}

TEST_F(Allocation, OfLinearIsBoundedByItsTiles) {
  const Context ctx({.threads = 2});
  const auto check = [&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t rows : {128, 256, 512, 1024}) {
      // 128 rows by 256 columns a product; x W, dz W^T, and x^T dz in one piece of rows.
      const std::int64_t products = rows / 128 * (3 + 1) + 3;
      EXPECT_LE(linear_allocations<T>(ctx, rows, 200, 700), kAllocationsPerProduct * products)
          << rows;
    }
  };
  check(float());
  check(bf16());
}

template <class T>
void check_model(model::ModelKind kind) {
  const Context ctx({.threads = 2});
  const model::ModelOptions options = {.kind = kind,
                                       .layers = 2,
                                       .width = 48,
                                       .heads = 3,
                                       .dq = 16,
                                       .dv = 16,
                                       .feed_forward = 40,
                                       .max_length = 150,
                                       .norm_length = 150,
                                       .dropout = 0.2};
  const std::vector<std::int64_t> offsets = {0, 70, 70, 201, 300};
  const std::int64_t n = offsets.back();
  std::vector<std::int64_t> times(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<std::int64_t>(37 * i);
  model::StepInput step;
  step.offsets = view_of(offsets);
  step.num_tokens = offsets.back();
  step.key_times = view_of(times);
  step.query_times = view_of(times);
  step.training = true;
  model::Model<T> model(ctx, options, {.capacity = n});
  model.initialise(ctx, 9);
  const Tensor rows = random_tensor<T>({n, options.width}, 4, 0.1);
  const Tensor dout = random_tensor<T>({n, options.width}, 5);
  Tensor drows(dtype_of<T>(), {n, options.width});
  const std::int64_t seen = warm_allocations([&] {
    model.forward(ctx, step, rows.view<T, 2>());
    model.backward(ctx, step, dout.view<T, 2>(), drows.view<T, 2>());
  });
  std::int64_t products = linear_allocations<T>(ctx, n, options.width, options.projection_width()) +
                          linear_allocations<T>(ctx, n, options.mixed_width(), options.width);
  if (kind == model::ModelKind::kFuxi) {
    products += linear_allocations<T>(ctx, n, options.width, 2 * options.feed_forward) +
                linear_allocations<T>(ctx, n, options.feed_forward, options.width);
  }
  EXPECT_EQ(seen, options.layers * products) << name_of(dtype_of<T>());
}

TEST_F(Allocation, OfAModelStepIsThatOfItsProducts) {
  for (const auto kind : {model::ModelKind::kHstu, model::ModelKind::kFuxi}) {
    check_model<float>(kind);
    check_model<bf16>(kind);
  }
}

TEST_F(Allocation, IsNotMadeByReadingTheFeaturesOfARankingModel) {
  const Context ctx({.threads = 3});
  const train::RankingTrainOptions options = test::small_ranking_training();
  model::FeatureRows features(ctx, options.features, options.memory.layers.sequences,
                              options.memory.layers.capacity);
  test::OwnedRankingBatch batch = test::ranking_share(0, 0, 1);
  const model::RankingBatch view = batch.view();
  const std::int64_t width = options.model.embedding;
  const Tensor rows = random_tensor<float>({features.most_rows(), width}, 1);
  Tensor slots(DType::kF32, {features.most_slots(), width});
  Tensor gradients(DType::kF32, rows.shape());
  EXPECT_EQ(warm_allocations([&] {
              features.read(ctx, view);
              const auto pooled = model::first_rows<float>(slots, features.num_slots());
              features.pool<float>(ctx, model::first_rows<float>(rows, features.num_rows()),
                                   pooled);
              features.sum_gradients<float>(
                  ctx, pooled, model::first_rows<float>(gradients, features.num_rows()));
            }),
            0);
}

TEST_F(Allocation, IsNotMadeBySendingARankingBatchToItsModel) {
  const Context ctx({.threads = 3});
  for (const auto kind : {model::ModelKind::kHstu, model::ModelKind::kFuxi}) {
    const train::RankingTrainOptions options = test::small_ranking_training(kind);
    model::RankingInputs inputs(ctx, options.model, options.memory, model::size_of(options.memory));
    test::OwnedRankingBatch batch = test::ranking_share(0, 0, 1);
    const model::RankingBatch view = batch.view();
    EXPECT_EQ(warm_allocations([&] { inputs.send(ctx, view); }), 0);
  }
}

TEST_F(Allocation, IsNotMadeByAWarmRankingStep) {
  const Context ctx({.threads = 2});
  const auto alone = dist::make_self();
  for (const auto schedule : {train::StepSchedule::kSerial, train::StepSchedule::kOverlap}) {
    train::RankingTrainOptions options = test::small_ranking_training();
    options.ranks.schedule = schedule;
    train::RankingTrainer<float> trainer(ctx, *alone, options);
    trainer.initialise(ctx);
    test::OwnedRankingBatch batch = test::ranking_share(0, 0, 1);
    const model::RankingBatch view = batch.view();
    EXPECT_EQ(warm_allocations([&] {
                trainer.submit(ctx, view);
                if (trainer.pending() == trainer.queue_length()) trainer.finish(ctx);
              }),
              0)
        << static_cast<int>(schedule);
  }
}

TEST_F(Allocation, IsNotMadeByReadingTheFeaturesOfARetrievalStep) {
  const Context ctx({.threads = 3});
  const test::StepShape shape;
  const test::FeatureWorld world(shape.items);
  const eval::RetrievalFeatures features = world.features({});
  const data::Batch batch = test::share_of(shape, 0, 0, 1);
  const eval::FeatureSize size = {.items = true,
                                  .most_items = shape.items,
                                  .batches = 1,
                                  .most_tokens = batch.num_tokens(),
                                  .most_sequences = batch.num_sequences()};
  eval::FeatureInputs inputs(features, size);
  model::FeatureRows rows(ctx, features.table_rows(), eval::feature_lists(features, size));
  EXPECT_EQ(warm_allocations([&] {
              inputs.clear();
              inputs.set_items({batch.items.data(), {20}});
              inputs.add_batch(batch);
              rows.read(ctx, inputs.places());
            }),
            0);
  EXPECT_GT(rows.num_rows(), 0);
}

// Over a communicator of one, which allocates nothing itself. Fetched ahead, with all that goes
// with it.
TEST_F(Allocation, IsNotMadeByShardedRows) {
  using embedding::Lane;
  using embedding::Part;
  const Context ctx({.threads = 1});
  const auto alone = dist::make_self();
  const std::vector<embedding::TableOptions> tables = {{.rows = 400, .width = 64},
                                                       {.rows = 90, .width = 32}};
  embedding::ShardedRows<float> source(ctx, ctx, *alone, tables, Device::kCpu,
                                       {.topology = dist::make_topology(alone->nodes(), 1)});
  source.initialise(ctx);
  std::vector<embedding::TouchedRows> touched;
  std::vector<embedding::StepRows<float>> rows;
  std::vector<Rows<const float>> gradients;
  std::vector<Tensor> memory;
  for (const embedding::TableOptions& table : tables) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 50; ++i) ids.push_back(i * 7 % table.rows);
    touched.emplace_back(table.rows);
    touched.back().mark(ctx, view_of(std::as_const(ids)));
    touched.back().number(ctx);
    memory.push_back(random_tensor<float>({touched.back().ids().shape[0], table.width}, 1));
    rows.push_back({memory.back().view<float, 2>(), {}});
    gradients.emplace_back(rows.back().rows);
  }
  const std::vector<std::int64_t> most(tables.size(), 100);
  const std::vector<AdamWSettings> settings(tables.size());
  std::unique_ptr<embedding::RowRequest> requests[2] = {source.make_request(ctx, most),
                                                        source.make_request(ctx, most)};
  double squares[2] = {};
  std::int64_t step = 0;
  const auto run = [&] {
    embedding::RowRequest &current = *requests[step % 2], &next = *requests[(step + 1) % 2];
    ++step;
    source.prepare(ctx, Lane::kThis, {.step = step, .tables = touched}, next);
    source.fetch(ctx, Lane::kThis, next, rows);
    source.plan_refresh(ctx, Lane::kThis, next, current, /*split=*/true);
    for (const Part part : {Part::kNextReads, Part::kRest}) {
      source.return_gradients(ctx, Lane::kThis, current, part, gradients, squares);
      source.update(ctx, Lane::kThis, current, part, settings, nullptr);
    }
    source.refresh(ctx, Lane::kThis, next, rows);
  };
  source.prepare(ctx, Lane::kThis, {.step = 0, .tables = touched}, *requests[0]);
  source.fetch(ctx, Lane::kThis, *requests[0], rows);
  run();  // both requests have been one step
  EXPECT_EQ(warm_allocations(run), 0);
}

}  // namespace
}  // namespace turbogr
