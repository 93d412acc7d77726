// Ranks over a GPU's memory: every collective, staged with several rank-threads on one GPU and by
// NCCL with one rank; and training over them against training on one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/device_rank_checks.h"
#include "tests/support/messages.h"
#include "tests/support/on_device.h"
#include "tests/support/rank_batches.h"
#include "tests/support/retrieval_features.h"
#include "tests/support/whole_table.h"
#include "turbogr/dist/device_communicator.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::train {
namespace {

constexpr test::StepShape kShape = {.sequences = 9, .longest = 40, .items = 60};
constexpr int kSteps = 5;

#define TGR_SKIP_WITHOUT_NCCL() \
  if (!dist::has_nccl()) GTEST_SKIP() << dist::nccl_version()

TEST(CudaRanks, StagedDoesEveryCollective) {
  TGR_SKIP_WITHOUT_GPU();
  for (const int size : {1, 2, 3}) {
    dist::run_threads(size, [](dist::Communicator& world) {
      const Context ctx({.device = Device::kCuda, .threads = 1});
      const auto staged = dist::make_staged(world.split(0, world.rank(), "staged"), ctx);
      test::check_device_collectives(ctx, *staged);
      const auto reversed = staged->split(0, -world.rank(), "reversed");
      test::check_device_collectives(ctx, *reversed);
    });
  }
}

TEST(CudaRanks, NcclOfOneDoesEveryCollective) {
  TGR_SKIP_WITHOUT_GPU();
  TGR_SKIP_WITHOUT_NCCL();
  const Context ctx({.device = Device::kCuda, .threads = 1});
  const auto nccl = dist::make_nccl(dist::make_self(), ctx);
  test::check_device_collectives(ctx, *nccl);
  const auto part = nccl->split(3, 0, "part");
  EXPECT_EQ(part->size(), 1);
  test::check_device_collectives(ctx, *part);
  // What self says, it says.
  Tensor four(DType::kU8, {4}, Device::kCuda), eight(DType::kU8, {8}, Device::kCuda);
  const std::vector<std::int64_t> is_four = {4}, is_eight = {8};
  EXPECT_EQ(test::message_of([&] {
              nccl->all_to_all({four.data(), is_four}, {eight.data(), is_eight});
            }),
            test::message_of([&] {
              dist::make_self()->all_to_all({four.data(), is_four}, {eight.data(), is_eight});
            }));
  const Context cpu({.threads = 1});
  EXPECT_NE(test::message_of([&] { dist::make_nccl(dist::make_self(), cpu); }).find("of a CPU"),
            std::string::npos);
}

TEST(CudaRanks, NcclRunsInTheOrderOfTheStream) {
  TGR_SKIP_WITHOUT_GPU();
  TGR_SKIP_WITHOUT_NCCL();
  const Context ctx({.device = Device::kCuda, .threads = 1});
  const auto nccl = dist::make_nccl(dist::make_self(), ctx);
  const std::int64_t count = 1 << 24;
  Tensor from(DType::kF32, {count}, Device::kCuda), to(DType::kF32, {count}, Device::kCuda),
      last(DType::kF32, {count}, Device::kCuda);
  const std::vector<std::int64_t> bytes = {static_cast<std::int64_t>(from.bytes())};
  const std::vector<float> ones(static_cast<std::size_t>(count), 1.0f);
  const Tensor host = test::tensor_of(ones);
  for (int round = 0; round < 3; ++round) {
    zero_bytes(ctx, from.data(), from.bytes());
    copy_bytes(ctx, from.data(), host.data(), host.bytes());
    nccl->all_to_all({from.data(), bytes}, {to.data(), bytes});
    copy_bytes(ctx, last.data(), to.data(), to.bytes());
    zero_bytes(ctx, to.data(), to.bytes());
    EXPECT_TRUE(test::vector_of<float>(ctx, last) == ones) << round;
  }
}

TEST(CudaRanks, TheGpuIsKnownByItsId) {
  TGR_SKIP_WITHOUT_GPU();
  EXPECT_GE(num_gpus(), 1);
  EXPECT_EQ(device_id().size(), 16u);
  const Context ctx({.device = Device::kCuda, .threads = 1});
  bind_thread(ctx);
  dist::run_threads(2, [](dist::Communicator& world) {
    EXPECT_EQ(dist::choose_link(world, "auto", device_id()).reason, "ranks share a GPU");
  });
}

train::RetrievalOptions options_of(model::ModelKind kind) {
  train::RetrievalOptions options;
  options.model.kind = kind;
  options.model.layers = 2;
  options.model.heads = 2;
  options.model.dq = options.model.dv = 32;
  options.model.width = 64;
  options.model.feed_forward = 64;
  options.model.max_length = 48;
  options.model.norm_length = 48;
  options.model.dropout = 0.2;
  options.memory.capacity = 400;
  options.memory.deterministic = true;
  options.temperature = 1;
  options.negatives.count = 7;
  // A rounding error of a gradient near zero must not become a step of full size.
  options.dense.epsilon = options.table.epsilon = 1e-2;
  options.dense.rate = options.table.rate = 1e-2;
  options.accumulate = 2;
  options.clip = 0.5;
  options.seed = 5;
  return options;
}

std::vector<data::Batch> batches_of(int step, int rank, int ranks) {
  return {test::share_of(kShape, 2 * step, rank, ranks),
          test::share_of(kShape, 2 * step + 1, rank, ranks)};
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<float> weights;
};

template <class T>
std::vector<float> weights_of(const Context& ctx, train::RetrievalTrainer<T>& trainer) {
  trainer.rows().settle(ctx);
  std::vector<float> all = test::whole_of(ctx, trainer.rows(), trainer.table().weight_tensor());
  for (const NamedTensor& tensor : trainer.model_tensors()) {
    std::vector<float> values(tensor.bytes() / sizeof(float));
    copy_bytes(ctx, values.data(), tensor.data, tensor.bytes());
    synchronize(ctx);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

template <class T>
Trained train_alone(const train::RetrievalOptions& options) {
  const Context ctx({.device = Device::kCuda, .threads = 1, .deterministic = true});
  train::RetrievalTrainer<T> trainer(ctx, options, kShape.items);
  trainer.initialise(ctx);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    const train::StepResult result = trainer.step(ctx, batches_of(step, 0, 1));
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  }
  trained.weights = weights_of(ctx, trainer);
  return trained;
}

template <class T>
Trained train_on_ranks(const train::RetrievalOptions& given, int ranks, int group,
                       train::RankOptions options) {
  Trained trained;
  std::mutex mutex;
  dist::run_threads(ranks, [&](dist::Communicator& world) {
    const Context ctx({.device = Device::kCuda, .threads = 1, .deterministic = true});
    train::RetrievalOptions own = given;
    own.ranks = options;
    own.ranks.topology = dist::make_topology(world.nodes(), group);
    train::RetrievalTrainer<T> trainer(ctx, world, own, kShape.items);
    trainer.initialise(ctx);
    Trained here;
    const auto keep = [&](const train::StepResult& result) {
      here.losses.push_back(result.loss);
      here.norms.push_back(result.gradient_norm);
    };
    for (int step = 0; step < kSteps; ++step) {
      trainer.submit(ctx, batches_of(step, world.rank(), world.size()));
      while (trainer.pending() > trainer.queue_length() - 1) keep(trainer.finish(ctx));
    }
    while (trainer.pending() > 0) keep(trainer.finish(ctx));
    here.weights = weights_of(ctx, trainer);
    const std::lock_guard lock(mutex);
    if (trained.losses.empty()) {
      trained = here;
    } else {
      TGR_CHECK(trained.weights == here.weights && trained.losses == here.losses,
                "ranks tell different stories");
    }
  });
  return trained;
}

void expect_near(const Trained& a, const Trained& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size()) << what;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], tolerance * a.losses[i]) << what << ", step " << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], 10 * tolerance * a.norms[i]) << what << ", step " << i;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size()) << what;
  double most = 0;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a.weights[i]) - b.weights[i]));
  }
  EXPECT_LT(most, 10 * tolerance) << what;
}

void expect_equal(const Trained& a, const Trained& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_TRUE(a.weights == b.weights) << what;
}

TEST(CudaRanks, AnyLayoutIsOneRankUpToRounding) {
  TGR_SKIP_WITHOUT_GPU();
  for (const model::ModelKind kind : {model::ModelKind::kHstu, model::ModelKind::kFuxi}) {
    const Trained alone = train_alone<float>(options_of(kind));
    for (const auto& [ranks, group] : {std::pair(1, 1), {2, 2}, {2, 1}, {4, 2}}) {
      expect_near(alone, train_on_ranks<float>(options_of(kind), ranks, group, {}), 2e-5,
                  std::to_string(ranks) + " ranks in groups of " + std::to_string(group));
    }
  }
  // More ranks than sequences: some have nothing to do.
  const train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  expect_near(train_alone<float>(options), train_on_ranks<float>(options, 10, 10, {}), 2e-5,
              "10 ranks");
}

TEST(CudaRanks, SchedulesThatPromiseItGiveTheSameBits) {
  TGR_SKIP_WITHOUT_GPU();
  const train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  for (const auto& [ranks, group] : {std::pair(2, 2), {4, 2}}) {
    const Trained serial = train_on_ranks<float>(options, ranks, group, {});
    expect_equal(serial, train_on_ranks<float>(options, ranks, group, {}), "again");
    for (const train::StepSchedule schedule :
         {train::StepSchedule::kOverlap, train::StepSchedule::kExactPrefetch}) {
      expect_equal(serial,
                   train_on_ranks<float>(options, ranks, group,
                                         {.schedule = schedule, .bucket_bytes = 4096}),
                   "schedule " + std::to_string(static_cast<int>(schedule)));
    }
    expect_equal(serial,
                 train_on_ranks<float>(options, ranks, group,
                                       {.schedule = train::StepSchedule::kSemiAsync, .delay = 0}),
                 "semi_async without delay");
  }
  const train::RankOptions late = {.schedule = train::StepSchedule::kSemiAsync};
  expect_near(train_on_ranks<float>(options, 1, 1, late),
              train_on_ranks<float>(options, 2, 2, late), 2e-5, "semi_async");
}

// Items shorter than the least length they are divided by: their logits are finite, and so are the
// gradients of dense weights; those of the items are past any float. Without clipping nothing but
// the check before the dense update stands between them and the weights.
TEST(CudaRanks, ABadGradientOfARowAloneChangesNothing) {
  TGR_SKIP_WITHOUT_GPU();
  train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  options.clip = 0;
  options.table_start = 1e-38;
  options.temperature = 1e-36;
  const Context ctx({.device = Device::kCuda, .threads = 1, .deterministic = true});
  train::RetrievalTrainer<float> untrained(ctx, options, kShape.items);
  untrained.initialise(ctx);
  const std::vector<float> fresh = weights_of(ctx, untrained);
  for (const train::StepSchedule schedule :
       {train::StepSchedule::kSerial, train::StepSchedule::kOverlap,
        train::StepSchedule::kExactPrefetch, train::StepSchedule::kSemiAsync}) {
    const Trained bad = train_on_ranks<float>(options, 2, 2, {.schedule = schedule});
    for (const double loss : bad.losses) EXPECT_TRUE(std::isfinite(loss)) << loss;
    EXPECT_TRUE(bad.weights == fresh) << static_cast<int>(schedule);
  }
}

TEST(CudaRanks, TrainsInBf16WithRowsInBf16OnTheWire) {
  TGR_SKIP_WITHOUT_GPU();
  const train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  const Trained wide = train_on_ranks<bf16>(options, 2, 2, {});
  // The model rounds rows to bf16 anyway: rounding them before they travel changes nothing.
  expect_equal(wide, train_on_ranks<bf16>(options, 2, 2, {.row_wire = DType::kBf16}), "rows");
  const Trained alone = train_alone<bf16>(options);
  for (std::size_t step = 0; step < alone.losses.size(); ++step) {
    EXPECT_NEAR(alone.losses[step], wide.losses[step], 0.02);
  }
  const Trained rounded = train_on_ranks<float>(
      options, 2, 2, {.row_wire = DType::kBf16, .gradient_wire = DType::kBf16});
  EXPECT_NEAR(rounded.losses.back(), alone.losses.back(), 0.02);
}

// As on the host: one group is exact, several are until their first update.
TEST(CudaRanks, AveragedReplicasAreExactUntilTheyPart) {
  TGR_SKIP_WITHOUT_GPU();
  train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  options.table_optimiser = embedding::SparseOptimiser::kAdaGrad;
  const train::RankOptions averaging = {.replicas = embedding::ReplicaMode::kAverage,
                                        .average_every = kSteps};
  expect_equal(train_on_ranks<float>(options, 2, 2, {}),
               train_on_ranks<float>(options, 2, 2, averaging), "one group");
  const Trained exact = train_on_ranks<float>(options, 4, 2, {});
  const Trained averaged = train_on_ranks<float>(options, 4, 2, averaging);
  EXPECT_EQ(averaged.losses[0], exact.losses[0]);
  expect_equal(averaged, train_on_ranks<float>(options, 4, 2, averaging), "again");
}

TEST(CudaRanks, NcclTrainsLikeStagedCopies) {
  TGR_SKIP_WITHOUT_GPU();
  TGR_SKIP_WITHOUT_NCCL();
  const train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  for (const train::StepSchedule schedule :
       {train::StepSchedule::kSerial, train::StepSchedule::kExactPrefetch,
        train::StepSchedule::kSemiAsync}) {
    expect_equal(train_on_ranks<float>(options, 1, 1, {.schedule = schedule}),
                 train_on_ranks<float>(options, 1, 1,
                                       {.schedule = schedule, .link = dist::DeviceLink::kNccl}),
                 "schedule " + std::to_string(static_cast<int>(schedule)));
  }
}

// Where rows lie changes no bit of them, nor what ranks make of them.
TEST(CudaRanks, TablesInHostMemoryAndF16NegativesWorkOverRanks) {
  TGR_SKIP_WITHOUT_GPU();
  train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  const Trained here = train_on_ranks<float>(options, 2, 2, {});
  options.table_in_host_memory = true;
  for (const train::StepSchedule schedule :
       {train::StepSchedule::kSerial, train::StepSchedule::kExactPrefetch}) {
    expect_equal(here, train_on_ranks<float>(options, 2, 2, {.schedule = schedule}), "host memory");
  }
  options.table_in_host_memory = false;
  options.negatives.half = true;
  expect_near(train_alone<float>(options), train_on_ranks<float>(options, 2, 2, {}), 2e-5, "f16");
  options.negatives.half = false;
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    options.table_dtype = dtype;
    const Trained rounded = train_on_ranks<float>(options, 2, 2, {});
    expect_equal(
        rounded,
        train_on_ranks<float>(options, 2, 2, {.schedule = train::StepSchedule::kExactPrefetch}),
        "half a table");
    EXPECT_NEAR(rounded.losses.back(), here.losses.back(), 0.02);
  }
}

// Features' tables travel with the items' in one message.
TEST(CudaRanks, SeveralTablesTravelTogether) {
  TGR_SKIP_WITHOUT_GPU();
  train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  const test::FeatureWorld world(kShape.items);
  options.features = world.features({.width = options.model.width});
  options.most_sequences = kShape.sequences;
  options.model.max_length += options.features.num_prefix();
  ASSERT_GT(options.features.tables.size(), 3u);
  const Trained alone = train_alone<float>(options);
  for (const auto& [ranks, group] : {std::pair(2, 2), {4, 2}}) {
    const Trained serial = train_on_ranks<float>(options, ranks, group, {});
    expect_near(alone, serial, 2e-5, std::to_string(ranks) + " ranks");
    expect_equal(serial,
                 train_on_ranks<float>(options, ranks, group,
                                       {.schedule = train::StepSchedule::kExactPrefetch}),
                 "exact_prefetch");
    const Trained rounded = train_on_ranks<float>(
        options, ranks, group, {.row_wire = DType::kF16, .gradient_wire = DType::kBf16});
    EXPECT_NEAR(rounded.losses.back(), alone.losses.back(), 0.02);
  }
}

// Outside of steps, as evaluation reads them: every row is the one of the table in one piece.
TEST(CudaRanks, RowsAreGatheredFromWhereTheyAre) {
  TGR_SKIP_WITHOUT_GPU();
  const train::RetrievalOptions options = options_of(model::ModelKind::kHstu);
  dist::run_threads(3, [&](dist::Communicator& world) {
    const Context ctx({.device = Device::kCuda, .threads = 1, .deterministic = true});
    train::RetrievalOptions spread = options;
    spread.ranks.topology = dist::make_topology(world.nodes(), 3);
    train::RetrievalTrainer<float> trainer(ctx, world, spread, kShape.items);
    trainer.initialise(ctx);
    trainer.step(ctx, batches_of(0, world.rank(), world.size()));
    const std::vector<float> whole =
        test::whole_of(ctx, trainer.rows(), trainer.table().weight_tensor());
    const std::vector<std::int64_t> ids =
        world.rank() == 1 ? std::vector<std::int64_t>{}
                          : std::vector<std::int64_t>{7, 0, 7, kShape.items - 1, 20};
    const auto width = static_cast<std::size_t>(options.model.width);
    Tensor out(DType::kF32, {std::max<std::int64_t>(std::ssize(ids), 1), options.model.width},
               Device::kCuda);
    const Rows<float> rows(reinterpret_cast<float*>(out.data()), std::ssize(ids),
                           options.model.width, options.model.width);
    trainer.rows().gather(ctx, 0, data::view_of(ids), rows);
    const std::vector<float> got = test::vector_of<float>(ctx, out);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::size_t c = 0; c < width; ++c) {
        ASSERT_EQ(got[i * width + c], whole[static_cast<std::size_t>(ids[i]) * width + c]);
      }
    }
  });
}

}  // namespace
}  // namespace turbogr::train
