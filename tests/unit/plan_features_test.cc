// What a plan counts beside items: features' rows against those that training reads, negatives
// against the config's sampler.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/loader.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/memory.h"
#include "turbogr/plan/planned_features.h"
#include "turbogr/plan/simulator.h"
#include "turbogr/plan/step_batches.h"
#include "turbogr/plan/step_routes.h"
#include "turbogr/run/config.h"
#include "turbogr/run/config_negatives.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/negative_sampler.h"

namespace turbogr::plan {
namespace {

using test::has;
using test::message_of;

constexpr std::int64_t kItems = 60, kUsers = 40;

void write_store(const std::filesystem::path& path) {
  PhiloxStream random(5);
  data::StoreWriter writer(path, {.time_unit = data::TimeUnit::kSeconds, .num_items = kItems});
  std::int64_t events = 0;
  for (std::int64_t user = 0; user < kUsers; ++user) {
    std::vector<std::int64_t> items, times;
    const auto length = static_cast<std::int64_t>(6 + random.below(10));
    for (std::int64_t i = 0; i < length; ++i, ++events) {
      // Few are met often.
      items.push_back(static_cast<std::int64_t>(random.below(1 + random.below(kItems))));
      times.push_back(1'600'000'000 + 4000 * events);
    }
    writer.add_user({.items = items, .times = times});
  }
  const auto add = [&](const std::string& name, data::FeatureOwner owner, std::int64_t rows) {
    data::FeatureWriter& codes = writer.add_feature({.name = name, .owner = owner});
    for (int value = 0; value < 4; ++value) codes.add_value(name + std::to_string(value));
    for (std::int64_t row = 0; row < rows; ++row) {
      codes.add_code(static_cast<std::int32_t>(random.below(5)));
    }
  };
  add("colour", data::FeatureOwner::kItem, kItems);
  add("tab", data::FeatureOwner::kEvent, events);
  add("gender", data::FeatureOwner::kUser, kUsers);
  data::FeatureWriter& tags = writer.add_feature(
      {.name = "tags", .owner = data::FeatureOwner::kItem, .kind = data::FeatureKind::kBag});
  for (int value = 0; value < 30; ++value) tags.add_value("t" + std::to_string(value));
  for (std::int64_t item = 0; item < kItems; ++item) {
    std::vector<std::int32_t> bag;
    for (std::uint64_t left = random.below(4); left > 0; --left) {
      bag.push_back(static_cast<std::int32_t>(1 + random.below(30)));
    }
    tags.add_bag(bag);
  }
  writer.finish();
}

run::Config config_of(const std::string& more) {
  return run::parse_config(R"(
[data]
store = "none"
max_length = 12
[model]
layers = 1
width = 16
heads = 1
output = "item"
[train]
tokens = 40
device = "cuda"
schedule = "exact_prefetch"
[negatives]
count = 8
set = "batch"
[embedding]
optimiser = "adagrad"
)" + more,
                           "features.toml");
}

const std::string kFeatures = R"(
[features.colour]
from = "item.colour"
[features.tags]
from = "item.tags"
most = 2
[features.tab]
from = "event.tab"
[features.hour]
from = "clock.hour"
[features.gender]
from = "user.gender"
[features.both]
cross = ["user", "event.tab"]
table = "both"
[tables.both]
rows = 50
)";

// Of every rank in its first step: what the trainer's own lists have.
TEST(PlanFeatures, CountTheRowsThatTrainingReads) {
  const test::TemporaryFolder folder;
  write_store(folder / "store");
  for (const char* output : {"item", "id"}) {
    run::Config config = config_of(kFeatures);
    config.model.output = output;
    const auto histories = open_histories((folder / "store").string(), {.config = config});
    const PlannedFeatures features(config, *histories);
    ASSERT_EQ(features.table_rows().size(), 6u);
    EXPECT_EQ(features.options().num_prefix(), 1);
    EXPECT_TRUE(has(features.text(), "codes are the store's"));
    const Context ctx({.threads = 2});
    constexpr int kRanks = 3;
    const StepBatch step = draw_steps(ctx, config, *histories, kRanks, 1).steps[0];
    for (int rank = 0; rank < kRanks; ++rank) {
      data::Loader loader(*histories->store(),
                          run::train_loader_options(config, *histories->store(), {rank, kRanks}));
      data::Batch batch;
      ASSERT_TRUE(loader.next(batch));
      std::vector<std::int64_t> items, rows;
      for (const std::uint32_t id : step.ids_of(rank)) {
        (id < kItems ? items : rows).push_back(id);
      }
      const eval::FeatureSize size = {.items = features.of_items(),
                                      .most_items = kItems,
                                      .batches = 1,
                                      .most_tokens = 1000,
                                      .most_sequences = 100};
      eval::FeatureInputs inputs(features.options(), size);
      inputs.set_items({items.data(), {std::ssize(items)}});
      inputs.add_batch(batch);
      model::FeatureRows real(ctx, features.table_rows(),
                              eval::feature_lists(features.options(), size));
      real.read(ctx, inputs.places());
      std::vector<std::int64_t> wanted;
      std::int64_t first = kItems;
      for (std::size_t t = 0; t < real.num_tables(); ++t) {
        for (std::int64_t i = 0; i < real.ids(t).shape[0]; ++i) {
          wanted.push_back(first + real.ids(t)(i));
        }
        first += features.table_rows()[t];
      }
      EXPECT_EQ(rows, wanted) << output << ", rank " << rank;
      std::int64_t reads = 0;
      for (const model::FeaturePlaces& places : inputs.places()) {
        for (const model::FeatureIds& ids : places.ids) reads += ids.ids.shape[0];
      }
      EXPECT_EQ(step.feature_reads_of(rank), reads) << output << ", rank " << rank;
    }
  }
}

TEST(PlanFeatures, TakeTimeLinksAndMemory) {
  const test::TemporaryFolder folder;
  write_store(folder / "store");
  const Context ctx({.threads = 2});
  const ClusterOptions cluster = {.nodes = 2, .gpus = 1};
  Simulation results[2];
  RankMemory memory[2];
  for (const bool with : {false, true}) {
    const run::Config config = config_of(with ? kFeatures : "");
    const auto histories = open_histories((folder / "store").string(), {.config = config});
    const PlannedFeatures features(config, *histories);
    const SimulationSetup setup = setup_of(config, cluster, &features);
    const DrawnSteps drawn = draw_steps(ctx, config, *histories, 2, 4);
    const auto routes = route_steps(ctx,
                                    {.topology = setup.topology,
                                     .rows = histories->num_items(),
                                     .feature_rows = features.table_rows()},
                                    drawn.steps);
    results[with] = simulate(setup, drawn.steps, routes);
    memory[with] =
        memory_of(config, setup.nodes,
                  {.num_items = kItems, .tokens = 40, .sequences = 20, .features = &features});
  }
  EXPECT_GT(results[1].compute_seconds, results[0].compute_seconds);
  EXPECT_GT(results[1].nic_bytes(), 1.2 * results[0].nic_bytes());
  EXPECT_GT(results[1].causal_flops, results[0].causal_flops);  // a token more a sequence
  EXPECT_EQ(results[1].tokens, results[0].tokens);
  EXPECT_GT(memory[1].table, memory[0].table);
  EXPECT_GT(memory[1].device, memory[0].device);
  EXPECT_GT(memory[1].host_steps, memory[0].host_steps);
}

// Rows are owned as by a sharding of each table of its own.
TEST(PlanFeatures, HaveOwnersTableByTable) {
  const LayoutOptions layout = {.topology = dist::make_topology({0, 0, 0}, 3),
                                .placement = embedding::Placement::kHash,
                                .rows = 10,
                                .feature_rows = {7, 12}};
  const TableShards shards(layout);
  EXPECT_EQ(shards.num_rows(), 29);
  const embedding::Sharding items(10, 3, layout.placement), last(12, 3, layout.placement);
  for (std::uint32_t row = 0; row < 10; ++row) {
    EXPECT_EQ(shards.place_of(row), static_cast<std::size_t>(items.shard_of(row)));
  }
  for (std::uint32_t row = 17; row < 29; ++row) {
    EXPECT_EQ(shards.place_of(row), static_cast<std::size_t>(last.shard_of(row - 17)));
  }
}

TEST(PlanFeatures, AreAssumedOfDataThatHasNone) {
  const Context ctx({.threads = 2});
  const run::Config silent = config_of("[features.colour]\nfrom = \"item.colour\"\n");
  const auto histories = open_histories("movielens", {.config = silent});
  EXPECT_TRUE(has(message_of([&] { const PlannedFeatures none(silent, *histories); }),
                  "[tables.colour] rows = 1000"));
  EXPECT_TRUE(has(message_of([&] { setup_of(silent, {}); }), "planned without them"));
  const run::Config config = config_of(R"(
[features.colour]
from = "item.colour"
[features.user]
from = "user"
[features.both]
cross = ["user.gender", "event.tab"]
[tables.colour]
rows = 9
[tables.both]
rows = 1000
)");
  const PlannedFeatures features(config, *histories);
  EXPECT_EQ(features.table_rows(),
            (std::vector<std::int64_t>{9, histories->num_users() + 1, 1000}));
  EXPECT_TRUE(has(features.text(), "one code a place is assumed"));
  const StepBatch step = draw_steps(ctx, config, *histories, 2, 1).steps[0];
  std::set<std::int64_t> colours, users;
  for (const std::uint32_t id : step.ids) {
    const std::int64_t row = id - histories->num_items();
    if (row >= 0 && row < 9) colours.insert(row);
    if (row >= 9 && row < 9 + features.table_rows()[1]) users.insert(row);
  }
  EXPECT_EQ(colours.size(), 8u);  // 0 is for what is missing
  EXPECT_EQ(std::ssize(users), std::ssize(step.lengths));
}

// A step's shared negatives are those of the sampler that the config names.
TEST(PlanNegatives, AreDrawnAsTheConfigSays) {
  const test::TemporaryFolder folder;
  write_store(folder / "store");
  const Context ctx({.threads = 2});
  for (const std::string sampler :
       {"sampler = \"uniform\"", "sampler = \"popularity\"", "sampler = \"in_batch\"",
        "sampler = \"mixed\"\nmix = [2, 1, 1]"}) {
    run::Config config = config_of("");
    const run::Config named = run::parse_config(
        "[data]\nstore = \"none\"\n[negatives]\ncount = 8\nset = \"batch\"\n" + sampler, "n.toml");
    config.negatives = named.negatives;
    const auto histories = open_histories((folder / "store").string(), {.config = config});
    const std::vector<std::int64_t> counts = target_counts(ctx, *histories);
    EXPECT_EQ(counts, run::training_counts(config, *histories->store()).empty()
                          ? counts
                          : run::training_counts(config, *histories->store()));
    const StepBatch step = draw_steps(ctx, config, *histories, 2, 1).steps[0];
    const train::NegativeOptions options = run::negative_options(config.negatives);
    train::NegativeSampler real(options, kItems, counts);
    real.begin_step({static_cast<std::uint64_t>(config.run.seed), 0});
    std::vector<std::set<std::int64_t>> wanted(2);
    for (int rank = 0; rank < 2; ++rank) {
      data::Loader loader(*histories->store(),
                          run::train_loader_options(config, *histories->store(), {rank, 2}));
      data::Batch batch;
      ASSERT_TRUE(loader.next(batch));
      real.add_positives(data::view_of(batch.targets));
      auto& own = wanted[static_cast<std::size_t>(rank)];
      own.insert(batch.items.begin(), batch.items.end());
      own.insert(batch.targets.begin(), batch.targets.end());
      if (!real.needs_positives()) {
        EXPECT_TRUE(step.positives.empty());
        continue;
      }
      const std::set<std::int64_t> targets(batch.targets.begin(), batch.targets.end());
      EXPECT_EQ(step.positives[static_cast<std::size_t>(rank)], std::ssize(targets));
    }
    real.finish_positives();
    std::vector<std::int64_t> negatives(8);
    negatives.resize(static_cast<std::size_t>(real.draw_shared(ctx, 0, {negatives.data(), {8}})));
    for (int rank = 0; rank < 2; ++rank) {
      auto& own = wanted[static_cast<std::size_t>(rank)];
      own.insert(negatives.begin(), negatives.end());
      const auto ids = step.ids_of(rank);
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), own.begin(), own.end())) << sampler;
    }
  }
}

TEST(PlanNegatives, MadeUpHistoriesAreCountedInPart) {
  const Context ctx({.threads = 2});
  const run::Config config = config_of("");
  const auto histories = open_histories("movielens", {.config = config});
  const auto sum_of = [](const std::vector<std::int64_t>& counts) {
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  };
  const std::vector<std::int64_t> all = target_counts(ctx, *histories);
  EXPECT_EQ(sum_of(all), histories->epoch_tokens());
  const std::vector<std::int64_t> some = target_counts(ctx, *histories, 10'000);
  EXPECT_NEAR(sum_of(some), 10'000, 500);
  EXPECT_EQ(some, target_counts(ctx, *histories, 10'000));
}

}  // namespace
}  // namespace turbogr::plan
