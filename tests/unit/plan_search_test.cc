// What a plan searches, how much memory it says a rank takes, and how often it says to save.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "turbogr/plan/checkpoint_interval.h"
#include "turbogr/plan/memory.h"
#include "turbogr/plan/search.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {
namespace {

run::Config small_config(std::vector<run::Override> more = {}) {
  std::vector<run::Override> overrides = {{"train.device", "cuda"},
                                          {"train.tokens", "1024"},
                                          {"data.max_length", "128"},
                                          {"negatives.set", "batch"},
                                          {"optim.clip", "0"}};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return run::load_config(test::source_dir() + "/configs/demo.toml", overrides);
}

std::vector<Choice> searched(const run::Config& config, const ClusterOptions& cluster) {
  const Context ctx({.threads = 2});
  const auto histories = open_histories("movielens", {.config = config});
  return PlanSearch(ctx, config, cluster, *histories, 1, "movielens").run();
}

TEST(PlanSearch, TriesFormatsBatchesAndGroupsOverMachines) {
  const run::Config config = small_config();
  const std::vector<Choice> choices = searched(config, {.nodes = 2, .gpus = 2});
  std::set<std::int64_t> tokens;
  bool rounded = false, spread = false;
  int half_tables = 0, hashed = 0;
  for (const Choice& choice : choices) {
    EXPECT_TRUE(choice.fits);
    if (choice.settings.dtype == "bf16") {  // said to round, and half the memory
      ++half_tables;
      EXPECT_TRUE(test::has(choice.settings.text(), "tables bf16"));
      EXPECT_NE(choice.semantics, Semantics::kSame);
      EXPECT_LT(choice.memory.table, choices[0].memory.table);
    }
    if (choice.settings.placement == "hash") {
      ++hashed;
      const bool exact = choice.settings.schedule != "semi_async" &&
                         choice.settings.gradients == "f32" && choice.settings.rows == "f32";
      EXPECT_EQ(choice.semantics == Semantics::kSame, exact);
    }
    tokens.insert(choice.settings.tokens);
    rounded = rounded || choice.settings.rows == "bf16";
    if (choice.settings.rows == "bf16") {
      EXPECT_NE(choice.semantics, Semantics::kSame);
    }
    spread = spread || choice.settings.spread;
    const bool other = choice.settings.tokens != 0;
    EXPECT_EQ(choice.semantics == Semantics::kOtherBatch, other) << choice.settings.text();
    const auto wanted = static_cast<double>(4 * (other ? choice.settings.tokens : 1024));
    EXPECT_NEAR(choice.simulation.tokens, wanted, 0.2 * wanted);
  }
  EXPECT_EQ(tokens, (std::set<std::int64_t>{0, 512, 2048}));
  EXPECT_TRUE(rounded);
  EXPECT_TRUE(spread);
  EXPECT_EQ(half_tables, 3);  // of the best of each kind of results
  EXPECT_EQ(hashed, 3);
  EXPECT_TRUE(std::is_sorted(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.token_seconds() < b.token_seconds();
  }));
}

// What is printed to be taken is what was simulated.
TEST(PlanSearch, NamesTheKeysOfASetting) {
  Settings settings = {8, "overlap", "bf16", "f32", true};
  settings.spread = true;
  settings.tokens = 512;
  settings.memory = "host";
  settings.placement = "hash";
  const run::Config config = small_config(settings.overrides());
  EXPECT_EQ(config.dist.group, 8);
  EXPECT_TRUE(config.dist.spread);
  EXPECT_EQ(config.train.tokens, 512);
  EXPECT_EQ(config.embedding.memory, "host");
  EXPECT_TRUE(config.train.recompute);
  EXPECT_EQ(settings.text(),
            "groups of 8 over machines, overlap, rows bf16, gradients f32, 512 tokens, tables on "
            "hosts, dealt by hash, recompute");
  EXPECT_EQ(config.dist.placement, "hash");
  settings.memory.clear();
  settings.dtype = "bf16";
  EXPECT_EQ(small_config(settings.overrides()).embedding.dtype, "bf16");
}

// What training would refuse is not proposed: tables of 16 bits on hosts.
TEST(PlanSearch, TriesOnlyWhatGoesTogether) {
  run::Config config = small_config({{"embedding.dtype", "bf16"}});
  config.model.width = 16384;  // more than the devices hold, even so
  const Context ctx({.threads = 2});
  const auto histories = open_histories("kuairand27k", {.config = config});
  PlanSearch search(ctx, config, {.nodes = 1, .gpus = 2}, *histories, 1);
  for (const Choice& choice : search.run()) {
    EXPECT_FALSE(choice.fits);
    EXPECT_NE(choice.settings.memory, "host");
  }
}

// A table that no device has room for goes to the hosts, and its rows over their links.
TEST(PlanSearch, KeepsTablesOnHostsWhereTheyDoNotFit) {
  run::Config config = small_config({{"embedding.optimiser", "adagrad"}, {"embedding.cache", "0"}});
  const Context ctx({.threads = 2});
  const auto histories = open_histories("kuairand27k", {.config = config});
  PlanSearch search(ctx, config, {.nodes = 1, .gpus = 1}, *histories, 1);
  const Settings device = {1, "serial", "f32", "f32", false};
  Settings host = device;
  host.memory = "host";
  const Choice there = search.try_settings(device), here = search.try_settings(host);
  ASSERT_TRUE(there.fits && here.fits);
  EXPECT_LT(here.memory.device, there.memory.device - 0.99 * here.memory.host_table);
  EXPECT_EQ(here.memory.host_table, there.memory.table);
  EXPECT_EQ(there.memory.host_table, 0);
  EXPECT_GE(here.simulation.step_seconds, there.simulation.step_seconds);
  // The link to the host is busy by itself: rows of some 200 bytes read, and updated both ways.
  EXPECT_EQ(there.simulation.host_link_seconds[0], 0);
  EXPECT_GT(here.simulation.host_link_seconds[0], 1000 * 256 / 50e9);

  config.model.width = 4096;  // 525 GB of rows
  config.embedding.dtype = "f32";
  PlanSearch large(ctx, config, {.nodes = 1, .gpus = 2}, *histories, 1);
  bool half = false;
  for (const Choice& choice : large.run()) {
    if (choice.settings.dtype == "bf16") {  // the other way to make room
      half = true;
      EXPECT_EQ(choice.settings.memory, "device");
      EXPECT_NE(choice.semantics, Semantics::kSame);
      continue;
    }
    EXPECT_TRUE(choice.fits);
    EXPECT_EQ(choice.settings.memory, "host");
    EXPECT_GT(choice.memory.least_host(), 200e9);
    // Rows of 16 KB: what the link does is not the device's computing.
    const Simulation& s = choice.simulation;
    const std::vector<Resource> busy = busiest(s);
    const auto link = std::find_if(busy.begin(), busy.end(), [](const Resource& each) {
      return each.name.starts_with("host link of rank ");
    });
    ASSERT_NE(link, busy.end());
    EXPECT_GT(link->share, 0.1);
    EXPECT_LE(s.device_seconds[0], s.busiest_seconds * 1.1);
    EXPECT_LT(choice.memory.least_host(), choice.memory.host);  // an odd number of rows
  }
  EXPECT_TRUE(half);
}

TEST(PlanMemory, IsTheDevicesAndTheHosts) {
  const std::vector<int> nodes = {0, 0, 1, 1};
  const run::Config config = small_config();
  const RunShape shape = {.num_items = 100'001, .tokens = 1024, .sequences = 64};
  const RankMemory memory = memory_of(config, nodes, shape);
  EXPECT_DOUBLE_EQ(memory.host, memory.host_steps + memory.host_batches + memory.host_table);
  EXPECT_GT(memory.host_batches, 1024 * 40);
  EXPECT_GT(memory.host_steps, 0);
  // Groups of two ranks: one has a row more, with its optimiser's state.
  EXPECT_GT(memory.device, memory.least_device());
  EXPECT_NEAR(memory.device - memory.least_device(), memory.table / 50'001, 1);
  EXPECT_EQ(memory.host, memory.least_host());
  RunShape even = shape;
  even.num_items = 100'000;
  EXPECT_EQ(memory_of(config, nodes, even).least_device(), memory_of(config, nodes, even).device);
  // Every rank's: the second of each group has the row less.
  ASSERT_EQ(memory.fewer.size(), 4u);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(memory.device_of(rank), memory.device);
    EXPECT_EQ(memory.device_of(rank + 1), memory.least_device());
    EXPECT_EQ(memory.host_of(rank), memory.host);
  }
  // An alias table of every item, and a host that reads further ahead.
  run::Config popular = config;
  popular.negatives.sampler = "popularity";
  EXPECT_GT(memory_of(popular, nodes, shape).host, memory.host + 8 * 100'001);
  run::Config ahead = config;
  ahead.data.prefetch += 10;
  EXPECT_GT(memory_of(ahead, nodes, shape).host_batches, memory.host_batches + 10 * 1024 * 40);
  run::Config processor = config;
  processor.train.device = "cpu";
  const RankMemory all = memory_of(processor, nodes, shape);
  EXPECT_EQ(all.host, all.device);
}

// What bands of pairs (ops/attention/hopper/attention_bands.h) leave of a GPU's memory for pairs: a
// matrix a layer up to 4,096 tokens, room linear in tokens beyond.
TEST(PlanMemory, OfLongSequencesIsLinearInTokens) {
  const auto bytes_of = [](const std::string& length, const std::string& bias) {
    const run::Config config = small_config({{"train.dtype", "bf16"},
                                             {"train.tokens", "65536"},
                                             {"data.max_length", length},
                                             {"model.layers", "16"},
                                             {"model.bias", bias}});
    return memory_of(config, {0}, {.num_items = 1000, .tokens = 65536, .sequences = 16});
  };
  const auto pairs_of = [&](const std::string& length) {
    return bytes_of(length, "time").activations - bytes_of(length, "none").activations;
  };
  const auto matrix = [](double length) { return 65536 * (length + 192); };
  EXPECT_GT(pairs_of("4096"), 18 * matrix(4096));
  EXPECT_LT(pairs_of("4096"), 1.04 * 18 * matrix(4096));  // a unit more for each sequence
  EXPECT_NEAR(pairs_of("65536"), 638e6, 2e6);             // not 18 of 4.3 GB
  EXPECT_NEAR(pairs_of("8192"), 610e6, 10e6);
}

// Young: with a save of 50 s and a failure every 10,000 s, every 1,000 s; 5 % and 5 %.
TEST(PlanCheckpoints, AreAsFarApartAsLosesLeast) {
  const CheckpointQuestion question = {.bytes = 400e9,
                                       .writers = 4,
                                       .disk_gbs = 2,
                                       .machine_hours = 160'000.0 / 3600,
                                       .machines = 16,
                                       .step_seconds = 0.1};
  const CheckpointInterval interval = checkpoint_interval(question);
  EXPECT_DOUBLE_EQ(interval.save_seconds, 50);
  EXPECT_NEAR(interval.failure_seconds, 10'000, 1e-6);
  EXPECT_NEAR(interval.seconds, 1000, 1e-6);
  EXPECT_NEAR(static_cast<double>(interval.steps), 10'000, 1);
  EXPECT_NEAR(interval.saving_share, 0.05, 1e-9);
  EXPECT_NEAR(interval.lost_share, 0.05, 1e-9);
  // Any other interval loses more.
  const auto lost = [&](double seconds) {
    return interval.save_seconds / seconds + seconds / 2 / interval.failure_seconds;
  };
  EXPECT_LT(lost(1000), lost(900));
  EXPECT_LT(lost(1000), lost(1100));
  CheckpointQuestion slow = question;
  slow.step_seconds = 1e6;
  EXPECT_EQ(checkpoint_interval(slow).steps, 1);
  slow.bytes = 0;
  EXPECT_TRUE(test::has(test::message_of([&] { checkpoint_interval(slow); }), "above zero"));
}

}  // namespace
}  // namespace turbogr::plan
