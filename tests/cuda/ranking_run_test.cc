// Whole runs of the ranking task by config, on a GPU: as a CPU's, resumed as if never stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/on_device.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/trained_model.h"
#include "turbogr/run/trained_ranker.h"
#include "turbogr/run/training_run.h"

namespace turbogr::train {
namespace {

constexpr std::int64_t kUsers = 60, kItems = 40, kEvents = 30;

// People like the items of their own kind, and every second one of the others now and then.
void write_kinds(const std::filesystem::path& path) {
  data::StoreSchema schema;
  schema.time_unit = data::TimeUnit::kSeconds;
  schema.num_items = kItems;
  schema.signals = {"like"};
  data::StoreWriter writer(path, schema);
  PhiloxStream random(5);
  for (std::int64_t user = 0; user < kUsers; ++user) {
    std::vector<std::int64_t> items, times;
    std::vector<std::uint32_t> signals;
    for (std::int64_t i = 0; i < kEvents; ++i) {
      const auto item = static_cast<std::int64_t>(random.below(kItems));
      const bool like = item % 4 == user % 4 || (item % 2 == 0 && random.below(2) == 0);
      items.push_back(item);
      times.push_back(1'000'000 + 60 * i);
      signals.push_back(like ? 1 : 0);
    }
    writer.add_user({.items = items, .times = times, .signals = signals, .numbers = {}});
  }
  writer.finish();
}

struct Trained {
  std::vector<double> losses;             // of each step
  std::map<std::string, double> figures;  // of the test split
};

class CudaRankingRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::has_gpu()) write_kinds(store());
  }
  std::string store() const { return folder_.path().string() + "/store"; }
  std::string dir(const std::string& run) const { return folder_.path().string() + "/" + run; }

  Trained train(const std::string& run, const std::vector<run::Override>& more) const {
    std::vector<run::Override> keys = {{"task", "ranking"},
                                       {"data.store", store()},
                                       {"data.max_length", "16"},
                                       {"data.holdout", "test"},
                                       {"samples.targets", "4"},
                                       {"run.dir", dir(run)},
                                       {"train.batch", "16"},
                                       {"train.threads", "2"},
                                       {"train.peak_tflops", "1"},
                                       {"train.epochs", "6"},
                                       {"optim.warmup", "5"},
                                       {"optim.lr", "0.01"},
                                       // The first steps divide a gradient by itself: see
                                       // tests/support/ranking_training.h.
                                       {"optim.eps", "1e-3"},
                                       {"embedding.eps", "1e-3"},
                                       {"model.layers", "2"},
                                       {"model.width", "32"},
                                       {"model.heads", "2"},
                                       {"model.positions", "64"},
                                       {"log.every", "1"},
                                       {"log.tensorboard", "false"}};
    keys.insert(keys.end(), more.begin(), more.end());
    Trained made;
    const auto alone = dist::make_self();
    const run::RunEnd end = run::run_training(
        run::parse_config("", "test", keys), "test", *alone,
        {.quiet = true, .progress = false, .on_record = [&](const run::MetricRecord& record) {
           for (const auto& [name, value] : record.values) {
             if (name == "loss") made.losses.push_back(value);
             if (record.split == "test") made.figures[name] = value;
           }
         }});
    EXPECT_EQ(end, run::RunEnd::kFinished);
    return made;
  }

  // Of the newest checkpoint, all tensors and their optimisers' state.
  std::string tensors(const std::string& run) const {
    const std::string folder = run::open_checkpoint(dir(run), run::Pick::kNewest).folder();
    std::string all;
    for (const char* file :
         {"model", "optimiser", "table_item-00001-of-00001", "table_user-00001-of-00001"}) {
      all += read_file(folder + "/" + file + ".safetensors");
    }
    return all;
  }

  test::TemporaryFolder folder_;
};

TEST_F(CudaRankingRun, LearnsWhatTheHostDoes) {
  TGR_SKIP_WITHOUT_GPU();
  const Trained cpu = train("cpu", {{"train.device", "cpu"}});
  const Trained gpu = train("gpu", {{"train.device", "cuda"}});
  const Trained pinned = train("pinned", {{"train.device", "cuda"}, {"embedding.memory", "host"}});
  const Trained half = train("bf16", {{"train.device", "cuda"}, {"train.dtype", "bf16"}});
  ASSERT_GT(cpu.losses.size(), 100u);
  ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
  for (std::size_t s = 0; s < 20; ++s) {
    EXPECT_NEAR(gpu.losses[s], cpu.losses[s], 1e-3 * cpu.losses[s]) << "step " << s;
  }
  EXPECT_GT(cpu.figures.at("auc"), 0.6);
  for (const Trained* run : {&gpu, &pinned, &half}) {
    for (const char* name : {"auc", "gauc", "ne"}) {
      EXPECT_NEAR(run->figures.at(name), cpu.figures.at(name), 0.02) << name;
    }
    EXPECT_EQ(run->figures.at("targets"), cpu.figures.at("targets"));
  }
}

TEST_F(CudaRankingRun, ResumesBitEqualToNeverHavingStopped) {
  TGR_SKIP_WITHOUT_GPU();
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::vector<run::Override> exact = {
        {"train.device", "cuda"}, {"train.deterministic", "true"}, {"train.dtype", dtype}};
    const auto with = [&](const std::string& steps, bool resume) {
      std::vector<run::Override> keys = exact;
      keys.push_back({"train.steps", steps});
      keys.push_back({"run.resume", resume ? "true" : "false"});
      return keys;
    };
    train("whole-" + dtype, with("40", false));
    train("parts-" + dtype, with("17", false));
    train("parts-" + dtype, with("40", true));
    EXPECT_TRUE(tensors("whole-" + dtype) == tensors("parts-" + dtype)) << dtype;
  }
}

TEST_F(CudaRankingRun, IsEvaluatedAndScoresAsItWasTrained) {
  TGR_SKIP_WITHOUT_GPU();
  const Trained run = train("gpu", {{"train.device", "cuda"}});
  const checkpoint::Checkpoint saved = run::open_checkpoint(dir("gpu"));
  const data::Store opened(store());
  const auto alone = dist::make_self();
  run::TrainedRanker ranker(saved, opened, 2, *alone, run::TrainedRanker::Use::kEvaluate);
  EXPECT_EQ(ranker.config().train.device, "cuda");
  const run::Evaluation found = ranker.evaluate(data::Split::kTest);
  // Products may be summed by another algorithm the second time: a pair of targets whose scores all
  // but tie can change places, and one pair of 416 is as small a step as the mean over users can
  // make here.
  for (const auto& [name, value] : found.figures) {
    EXPECT_NEAR(value, run.figures.at(name), name.starts_with("gauc") ? 1.5 / 416 : 1e-4) << name;
  }
  run::TrainedRanker scorer(saved, opened, 2, *alone, run::TrainedRanker::Use::kScore);
  data::SampleRequest request;
  request.user = 5;
  request.items = {1, 2, 3, 5};
  const std::vector<float> together = scorer.score({&request, 1});
  ASSERT_EQ(together.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    data::SampleRequest one = request;
    one.items = {request.items[i]};
    EXPECT_NEAR(scorer.score({&one, 1})[0], together[i], 1e-5);
  }
  EXPECT_GT(together[0], together[2]);  // of the user's kind, and not
}

}  // namespace
}  // namespace turbogr::train
