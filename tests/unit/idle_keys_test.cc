#include "turbogr/run/idle_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/run/config_keys.h"

namespace turbogr::run {
namespace {

using test::message_of;

Config with(const std::vector<Override>& overrides) {
  return parse_config("", "test.toml", overrides);
}

TEST(IdleKeys, DefaultsAreNeverIdle) {
  EXPECT_EQ(check_idle_keys(with({}), {}), "");
  EXPECT_EQ(check_idle_keys(with({}), {.world = 4, .groups = 2, .sharded = true}), "");
}

TEST(IdleKeys, WhatAnotherKeySwitchesOffIsRefused) {
  const RunLayout many = {.world = 4, .groups = 2, .sharded = true};
  const struct {
    std::vector<Override> set, reads;
    std::string message;
  } cases[] = {
      {{{"train.delay", "0"}},
       {{"train.schedule", "semi_async"}},
       "train.delay = 0 is for train.schedule = \"semi_async\"; use that, or leave train.delay"},
      {{{"train.sync_steps", "5"}},
       {{"train.schedule", "semi_async"}},
       "train.sync_steps = 5 is for train.schedule = \"semi_async\" with train.delay = 1"},
      {{{"train.sync_steps", "5"}, {"train.schedule", "semi_async"}, {"train.delay", "0"}},
       {{"train.delay", "1"}},
       "train.sync_steps = 5 is for"},
      {{{"dist.average_every", "3"}},
       {{"dist.replicas", "average"}},
       "dist.average_every = 3 is for dist.replicas = \"average\""},
  };
  for (const auto& each : cases) {
    const std::string message = message_of([&] { check_idle_keys(with(each.set), many); });
    EXPECT_NE(message.find(each.message), std::string::npos) << message;
    std::vector<Override> both = each.set;
    both.insert(both.end(), each.reads.begin(), each.reads.end());
    EXPECT_EQ(check_idle_keys(with(both), many), "") << each.message;
  }
  const Config grouped = with({{"dist.group", "2"}});
  EXPECT_NE(message_of([&] { check_idle_keys(grouped, {}); }).find("started with mpirun or srun"),
            std::string::npos);
  EXPECT_EQ(check_idle_keys(grouped, many), "");
  EXPECT_EQ(check_idle_keys(with({{"dist.group", "1"}}), {}), "");
}

TEST(IdleKeys, ACacheThatNobodyFillsIsNamed) {
  const std::vector<Override> cache = {
      {"train.device", "cuda"}, {"embedding.memory", "host"}, {"embedding.cache", "0.2"}};
  const auto said = [&](const Override& beside, const RunLayout& layout = {}) {
    std::vector<Override> set = cache;
    set.push_back(beside);
    return check_idle_keys(with(set), layout);
  };
  EXPECT_EQ(said({"run.seed", "2"}), "");
  for (const std::string& idle :
       {said({"run.seed", "2"}, {.world = 2, .sharded = true}), said({"negatives.dtype", "f16"}),
        said({"features.genres.from", "item.genres"})}) {
    EXPECT_NE(idle.find("embedding.cache = 0.2"), std::string::npos) << idle;
  }
}

TEST(IdleKeys, WhatWaitsForMoreRanksIsNamed) {
  const std::vector<Override> set = {{"dist.spread", "true"},    {"dist.ranks_per_node", "2"},
                                     {"dist.placement", "hash"}, {"dist.replicas", "average"},
                                     {"dist.rows", "bf16"},      {"dist.gradients", "bf16"},
                                     {"dist.bucket", "7"},       {"dist.balance", "false"},
                                     {"dist.timeout", "5.0"},    {"dist.average_every", "2"}};
  const Config config = with(set);
  const std::string alone = check_idle_keys(config, {});
  for (const Override& each : set) {
    if (each.key == "dist.average_every") continue;  // read by replicas, which is named
    EXPECT_NE(alone.find(each.key + " = "), std::string::npos) << each.key << ": " << alone;
  }
  const std::string one_asking = check_idle_keys(config, {.sharded = true});
  EXPECT_EQ(one_asking.find("dist.rows"), std::string::npos) << one_asking;
  EXPECT_NE(one_asking.find("dist.balance"), std::string::npos) << one_asking;
  const std::string one_group = check_idle_keys(config, {.world = 4, .sharded = true});
  EXPECT_EQ(one_group,
            "nothing in this run reads dist.replicas = \"average\" (for several groups of ranks), "
            "dist.spread = true (for several groups of ranks on several machines)");
  EXPECT_EQ(check_idle_keys(config, {.world = 4, .groups = 2, .sharded = true}),
            "nothing in this run reads dist.spread = true (for several groups of ranks on several "
            "machines)");
  EXPECT_EQ(check_idle_keys(config, {.world = 4, .groups = 2, .machines = 2, .sharded = true}), "");
}

TEST(IdleKeys, EveryKeyOfDistIsLookedAfter) {
  for (const ConfigKey& key : config_keys()) {
    // Of GPUs and of dry runs: checked where those are.
    if (!key.name.starts_with("dist.") || key.name == "dist.link" || key.name == "dist.world") {
      continue;
    }
    Config config;
    const Config defaults;
    const ConfigValue value = key.get(defaults);
    if (const bool* flag = std::get_if<bool>(&value)) key.set(config, !*flag);
    if (const auto* whole = std::get_if<std::int64_t>(&value)) key.set(config, *whole + 2);
    if (const double* real = std::get_if<double>(&value)) key.set(config, *real + 1);
    if (std::holds_alternative<std::string>(value)) {
      key.set(config, std::string(key.name == "dist.placement"  ? "hash"
                                  : key.name == "dist.replicas" ? "average"
                                                                : "bf16"));
    }
    std::string said;
    try {
      said = check_idle_keys(config, {});
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(key.name), std::string::npos) << key.name;
  }
}

TEST(IdleKeys, WhatRankingAloneReadsIsRefusedInRetrieval) {
  for (const Override& each : std::vector<Override>{{"embedding.cut", "10"},
                                                    {"samples.targets", "4"},
                                                    {"samples.builder", "last"},
                                                    {"samples.actions", "[\"click\"]"},
                                                    {"train.loss_scale", "1.0"},
                                                    {"model.embedding", "8"},
                                                    {"eval.group", "request"},
                                                    {"model.normaliser", "batch"}}) {
    const std::string message = message_of([&] { check_idle_keys(with({each}), {}); });
    EXPECT_NE(message.find(" is for task = \"ranking\"; use that, or leave " + each.key + " out"),
              std::string::npos)
        << each.key << ": " << message;
    EXPECT_EQ(check_idle_keys(with({{"task", "ranking"}, each}), {}), "") << each.key;
  }
  const Override task = {"tasks.click.weight", "2.0"};
  EXPECT_NE(message_of([&] {
              check_idle_keys(with({task}), {});
            }).find("[tasks.click] is for task = \"ranking\""),
            std::string::npos);
  EXPECT_EQ(check_idle_keys(with({{"task", "ranking"}, task}), {}), "");
}

TEST(IdleKeys, WhatRetrievalAloneReadsIsRefusedInRanking) {
  for (const Override& each : std::vector<Override>{{"negatives.count", "7"},
                                                    {"negatives.set", "batch"},
                                                    {"model.temperature", "0.1"},
                                                    {"data.history", "windows"},
                                                    {"eval.seen", "keep"}}) {
    EXPECT_EQ(check_idle_keys(with({each}), {}), "") << each.key;
    const std::string message = message_of([&] {
      check_idle_keys(with({{"task", "ranking"}, each}), {});
    });
    EXPECT_NE(message.find(" is for task = \"retrieval\"; use that, or leave " + each.key + " out"),
              std::string::npos)
        << each.key << ": " << message;
  }
  const Override ranks = {"task", "ranking"}, bias = {"model.bias", "none"};
  EXPECT_NE(message_of([&] { check_idle_keys(with({ranks, bias}), {}); }), "");
  EXPECT_EQ(check_idle_keys(with({ranks, bias, {"model.kind", "fuxi"}}), {}), "");
}

TEST(IdleKeys, AConstantRateHasNoEnd) {
  EXPECT_NE(check_idle_keys(with({{"optim.final_lr", "0.1"}}), {}).find("optim.final_lr = 0.1"),
            std::string::npos);
  EXPECT_EQ(check_idle_keys(with({{"optim.final_lr", "0.1"}, {"optim.schedule", "linear"}}), {}),
            "");
}

}  // namespace
}  // namespace turbogr::run
