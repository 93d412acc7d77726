// What binds a plan's best setting and what would help it, by the figures that it gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/plan/explain.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {
namespace {

run::Config small_config(const std::string& clip) {
  return run::load_config(test::source_dir() + "/configs/demo.toml", {{"train.device", "cuda"},
                                                                      {"train.dtype", "bf16"},
                                                                      {"train.tokens", "1024"},
                                                                      {"data.max_length", "128"},
                                                                      {"negatives.set", "batch"},
                                                                      {"optim.clip", clip}});
}

struct Explained {
  Choice best;
  std::vector<Resource> busy;
  std::vector<WhatIf> changes;

  const WhatIf& change(const std::string& begin) const {
    const auto found = std::find_if(changes.begin(), changes.end(), [&](const WhatIf& each) {
      return each.text.starts_with(begin);
    });
    EXPECT_NE(found, changes.end()) << begin;
    return *found;
  }
};

const Settings kSetting = {4, "exact_prefetch", "bf16", "f32"};

Explained explained(const run::Config& config, const std::string& network) {
  const Context ctx({.threads = 2});
  const ClusterOptions cluster = {.nodes = 2, .gpus = 2, .network = network};
  const auto histories = open_histories("movielens", {.config = config});
  PlanSearch search(ctx, config, cluster, *histories, 1, "movielens");
  Choice best = search.try_settings(kSetting);
  std::vector<Resource> busy = busiest(best.simulation);
  std::vector<WhatIf> changes = what_would_help(search, best);
  return {std::move(best), std::move(busy), std::move(changes)};
}

// Of a network file with NICs of a fiftieth of a gigabyte a second.
class PlanExplain : public ::testing::Test {
 protected:
  std::string slow_network() const {
    const std::string file = (folder_.path() / "slow.json").string();
    std::string text = read_file(test::source_dir() + "/turbogr/plan/machines/eth25.json");
    const std::string rate = "\"nic_gbs\": {\"value\": 2.8";
    const std::size_t at = text.find(rate);
    EXPECT_NE(at, std::string::npos);
    replace_file(file, text.replace(at, rate.size(), "\"nic_gbs\": {\"value\": 0.02"));
    return file;
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(PlanExplain, SlowNicsBindAndFasterOnesHelpMost) {
  const Explained slow = explained(small_config("0"), slow_network());
  const Simulation& s = slow.best.simulation;
  ASSERT_FALSE(slow.busy.empty());
  EXPECT_TRUE(slow.busy[0].name.starts_with("NIC 0 of machine ")) << slow.busy[0].name;
  // As busy as its bytes say, and not more than always.
  double most = 0;
  for (const LinkUse& nic : s.nics) most = std::max(most, nic.bytes() / 0.02e9);
  EXPECT_GE(slow.busy[0].share, most / s.step_seconds * (1 - 1e-9));
  EXPECT_LE(slow.busy[0].share, 1.0 + 1e-9);
  EXPECT_GT(slow.busy[0].share, 0.5);

  const double nics = slow.change("NICs twice as fast").gain;
  EXPECT_GT(nics, 0.3);
  EXPECT_LT(nics, 1);  // what is not the NICs' stays
  EXPECT_GT(nics, slow.change("devices that compute twice as fast").gain);
  EXPECT_GT(nics, slow.change("ports twice as fast").gain);
  EXPECT_GT(slow.change("--network ib400x8").gain, nics);
  for (const WhatIf& each : slow.changes) {
    const double before = s.tokens / s.step_seconds;
    const double after = each.simulation.tokens / each.simulation.step_seconds;
    EXPECT_NEAR(each.gain, after / before - 1, 1e-9) << each.text;
  }
  EXPECT_TRUE(std::is_sorted(slow.changes.begin(), slow.changes.end(),
                             [](const WhatIf& a, const WhatIf& b) { return a.gain > b.gain; }));
}

TEST_F(PlanExplain, ComputingBindsOnAFastNetwork) {
  const Explained fast = explained(small_config("0"), "ib400x8");
  EXPECT_TRUE(fast.busy[0].name.starts_with("computing of rank ")) << fast.busy[0].name;
  EXPECT_NEAR(fast.busy[0].share,
              *std::max_element(fast.best.simulation.device_seconds.begin(),
                                fast.best.simulation.device_seconds.end()) /
                  fast.best.simulation.step_seconds,
              1e-12);
  EXPECT_GE(fast.busy[0].share, 0.9 * fast.best.simulation.linearity());
  const double devices = fast.change("devices that compute twice as fast").gain;
  EXPECT_GT(devices, 0.3);
  EXPECT_GT(devices, fast.change("NICs twice as fast").gain);
  EXPECT_LT(fast.change("NICs twice as fast").gain, 0.1);
  EXPECT_TRUE(test::has(fast.change("--gpu b200").text, "published"));
}

// Each change is what a plan with that change says by itself.
TEST_F(PlanExplain, ChangesOneThingAtATime) {
  const std::string network = slow_network();
  const Explained clipped = explained(small_config("1"), network);
  const Explained free = explained(small_config("0"), network);
  const WhatIf& change = clipped.change("optim.clip = 0");
  EXPECT_EQ(change.results, "not clipped");
  EXPECT_EQ(change.simulation.step_seconds, free.best.simulation.step_seconds);
  EXPECT_NE(change.simulation.step_seconds, clipped.best.simulation.step_seconds);
  for (const WhatIf& each : free.changes) EXPECT_FALSE(each.text.starts_with("optim.clip"));

  // The other schedules, groups, formats on the wire and of tables, placements and batches.
  for (const char* setting :
       {"groups of 4, overlap, rows bf16, gradients f32", "groups of 4, semi_async, rows bf16",
        "groups of 2, exact_prefetch, rows bf16", "groups of 2 over machines, exact_prefetch",
        "groups of 4, exact_prefetch, rows bf16, gradients bf16",
        "groups of 4, exact_prefetch, rows bf16, gradients f32, tables bf16",
        "groups of 4, exact_prefetch, rows bf16, gradients f32, dealt by hash",
        "groups of 4, exact_prefetch, rows bf16, gradients f32, 2048 tokens"}) {
    free.change(setting);
  }
  const WhatIf& half = free.change("groups of 4, exact_prefetch, rows bf16, gradients bf16");
  EXPECT_EQ(half.results, "rounded");
  EXPECT_GT(half.gain, 0.05);  // fewer bytes through NICs that bind
}

}  // namespace
}  // namespace turbogr::plan
