// A description made of measured steps: those of bench/results/step_h200_2026-11-15.md give the
// figures that the built-in one has.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/plan/cluster.h"
#include "turbogr/plan/describe.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {
namespace {

// Milliseconds: attention forward and backward, products, elementwise, embedding, loss, optimiser.
MeasuredStep step_of(const std::string& config, const std::string& bias, double ms,
                     const std::vector<double>& sections) {
  MeasuredStep step;
  const run::Config loaded =
      run::load_config(test::source_dir() + "/configs/" + config, {{"model.bias", bias}});
  step.work = setup_of(loaded, {.nodes = 1, .gpus = 1}).work;
  const std::int64_t longest = loaded.data.max_length;
  step.lengths.assign(longest == 2048 ? 30 : 13, longest);
  step.lengths.insert(step.lengths.end(), longest == 2048 ? 4 : 6, longest / 2);
  step.seconds = 1e-3 * ms;
  step.sections = {.products = 1e-3 * sections[2],
                   .attention_forward = 1e-3 * sections[0],
                   .attention_backward = 1e-3 * sections[1],
                   .elementwise = 1e-3 * sections[3],
                   .embedding = 1e-3 * sections[4],
                   .loss = 1e-3 * sections[5],
                   .optimiser = 1e-3 * sections[6]};
  return step;
}

std::vector<MeasuredStep> measured_steps() {
  return {
      step_of("kuairand27k-hstu-large.toml", "both", 115.1, {9.4, 33.9, 45.9, 14.2, .6, 6.1, .8}),
      step_of("kuairand27k-hstu-long.toml", "both", 142.7, {15.3, 57.1, 46.2, 14.2, .6, 6.3, .9}),
      step_of("kuairand27k-fuxi-large.toml", "both", 222.0,
              {17.5, 49.4, 113.3, 30.9, .6, 6.6, 1.8}),
      step_of("kuairand27k-fuxi-long.toml", "both", 263.3, {28.5, 81.0, 113.3, 30.8, .6, 6.5, 1.8}),
      step_of("kuairand27k-hstu-large.toml", "none", 106.3, {7.5, 29.3, 46.6, 14.3, .6, 6.3, .8})};
}

TEST(PlanDescribe, FindsTheFiguresOfMeasuredSteps) {
  const GpuDescription built_in = gpu_description("h200");
  GpuDescription blank = built_in;
  for (const NamedFigure& each : figures_of(blank)) {
    const_cast<Figure*>(each.figure)->source = "published: nothing";
  }
  const GpuDescription found = describe(blank, measured_steps(), "measured: a page");
  const std::vector<NamedFigure> wanted = figures_of(built_in), got = figures_of(found);
  int measured = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].figure->source != "measured: a page") continue;
    ++measured;
    // A small difference of large numbers; and lengths here are made up.
    const double bound = got[i].key == "step_gap_ms" ? 0.4 : 0.12;
    EXPECT_NEAR(got[i].figure->value / wanted[i].figure->value, 1, bound)
        << got[i].key << ": " << got[i].figure->value;
  }
  EXPECT_EQ(measured, 15);  // of the steps: rows touched are not known here
  for (const MeasuredStep& step : measured_steps()) {
    const SectionSeconds again =
        ComputeCost(found, step.work).of({.lengths = step.lengths, .rows = 60'000});
    EXPECT_NEAR(again.attention_forward / step.sections.attention_forward, 1, 0.01);
    EXPECT_NEAR(again.attention_backward / step.sections.attention_backward, 1, 0.01);
    EXPECT_NEAR(again.total() / step.seconds, 1, 0.03);
  }
}

TEST(PlanDescribe, WritesAFileThatCanBeRead) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "mine.json").string();
  const GpuDescription found =
      describe(gpu_description("h100"), measured_steps(), "measured: a page");
  replace_file(path, json_of({.gpu = found, .network = std::nullopt, .collectives = {}}));
  const GpuDescription read = gpu_description(path);
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(read.product_tflops.value, found.product_tflops.value);
  EXPECT_EQ(read.product_tflops.source, "measured: a page");
  EXPECT_EQ(read.memory_gib.source, gpu_description("h100").memory_gib.source);
  EXPECT_EQ(read.device, "cuda");
  EXPECT_TRUE(test::has(test::message_of([&] { network_description(path); }), "has no network"));
}

// Sections of a CPU's steps, and what is left of them: a gap, and so much an id.
TEST(PlanDescribe, TellsAHostsWorkOnIdsFromWhatEveryStepHas) {
  std::vector<MeasuredStep> steps = measured_steps();
  MeasuredStep many_ids = steps.back();
  many_ids.work.shared_negatives = false;
  many_ids.work.negatives = 128;
  steps.push_back(many_ids);
  for (MeasuredStep& step : steps) {
    step.seconds = step.sections.total() + 2e-3 + 50e-9 * ids_marked(step.work, step.lengths);
  }
  GpuDescription base = gpu_description("h200");
  base.device = "cpu";
  const GpuDescription found = describe(base, steps, "measured: a page");
  EXPECT_NEAR(found.host_ids_ns.value, 50, 0.01);
  EXPECT_NEAR(found.step_gap_ms.value, 2, 0.01);
}

// Exchanges and sums of links that take 30 us and a nanosecond a byte between machines, 5 us and a
// tenth of that inside.
std::vector<CollectiveTime> measured_links() {
  std::vector<CollectiveTime> times;
  for (const std::int64_t bytes : {64, 4096, 262'144}) {
    const auto size = static_cast<double>(bytes);
    times.push_back({"exchange", 2, 1, bytes, 5e-6 + 1e-10 * size});
    times.push_back({"exchange", 2, 2, bytes, 30e-6 + 1e-9 * size});
    times.push_back({"all_to_all", 4, 2, bytes, 50e-6 + 2e-9 * size});
    // Two rounds of half the bytes inside, and four bytes a nanosecond added up.
    times.push_back({"all_reduce", 2, 1, bytes, 10e-6 + 1e-10 * size + 0.25e-9 * size});
  }
  return times;
}

TEST(PlanDescribe, FindsLatenciesAndRatesOfLinks) {
  GpuDescription cpu = gpu_description("h200");
  cpu.device = "cpu";
  const auto network =
      describe_network(measured_links(), "measured: a page", network_description("eth25"), cpu);
  ASSERT_TRUE(network.has_value());
  EXPECT_NEAR(network->nic_gbs.value, 1, 1e-6);
  EXPECT_NEAR(network->host_us.value, 30, 0.1);  // 64 bytes have a little more
  EXPECT_NEAR(network->host_gbs.value, 10, 1e-5);
  EXPECT_NEAR(network->message_us.value, 10, 0.1);  // two more messages, 20 us
  EXPECT_NEAR(network->host_sum_gbs.value, 4, 0.01);
  EXPECT_NEAR(cpu.local_us.value, 5, 0.01);
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "mine.json").string();
  replace_file(path, json_of({.gpu = cpu, .network = network, .collectives = measured_links()}));
  EXPECT_EQ(network_description(path).nic_gbs.value, network->nic_gbs.value);
  EXPECT_EQ(gpu_description(path).device, "cpu");
  const std::string written = read_file(path);
  EXPECT_TRUE(test::has(written, "\"alpha_us\": 30.06"));
  EXPECT_TRUE(test::has(written, "\"collective\": \"exchange\"")) << written;
  // Of an older program, which named them by another key.
  std::string older = written;
  const std::string key = "\"collective\"";
  for (std::size_t at = 0; (at = older.find(key, at)) != std::string::npos;) {
    older.replace(at, key.size(), "\"verb\"");
  }
  replace_file(path, older);
  EXPECT_EQ(network_description(path).nic_gbs.value, network->nic_gbs.value);
}

TEST(PlanDescribe, LinksOfOneMachineLeaveThoseBetweenMachinesAlone) {
  std::vector<CollectiveTime> times = measured_links();
  std::erase_if(times, [](const CollectiveTime& time) { return time.nodes > 1; });
  GpuDescription gpu = gpu_description("h200");
  const NetworkDescription base = network_description("eth25");
  const auto network = describe_network(times, "measured: a page", base, gpu);
  ASSERT_TRUE(network.has_value());
  EXPECT_EQ(network->host_gbs.source, "measured: a page");
  EXPECT_EQ(network->nic_gbs.source, base.nic_gbs.source);
  EXPECT_FALSE(describe_network({}, "measured: a page", base, gpu).has_value());
}

// MPI between hosts says nothing of NVLink nor of what a GPU's NIC does: those figures stay what
// --like and --like-network have, source and all.
TEST(PlanDescribe, LinksOfGpusAreNotThoseOfTheirHosts) {
  const GpuDescription like = gpu_description("h200");
  const NetworkDescription base = network_description("ib400x8");
  GpuDescription gpu = like;
  const auto network = describe_network(measured_links(), "measured: a page", base, gpu);
  ASSERT_TRUE(network.has_value());
  const auto expect_same = [](const Figure& found, const Figure& wanted, std::string_view key) {
    EXPECT_EQ(found.value, wanted.value) << key;
    EXPECT_EQ(found.source, wanted.source) << key;
  };
  for (std::size_t i = 0; i < figures_of(gpu).size(); ++i) {
    expect_same(*figures_of(gpu)[i].figure, *figures_of(like)[i].figure, figures_of(like)[i].key);
  }
  for (std::size_t i = 0; i < figures_of(base).size(); ++i) {
    const NamedFigure found = figures_of(*network)[i];
    if (found.key.starts_with("host_")) {
      EXPECT_EQ(found.figure->source, "measured: a page") << found.key;
    } else {
      expect_same(*found.figure, *figures_of(base)[i].figure, found.key);
    }
  }
  EXPECT_NEAR(network->host_us.value, 30, 0.1);
  EXPECT_NEAR(network->host_gbs.value, 10, 1e-5);
}

TEST(PlanDescribe, RefusesStepsThatAreAlike) {
  std::vector<MeasuredStep> steps = measured_steps();
  steps.resize(1);
  steps.push_back(steps[0]);
  EXPECT_TRUE(test::has(
      test::message_of([&] { describe(gpu_description("h200"), steps, "measured: a page"); }),
      "longer sequences"));
}

}  // namespace
}  // namespace turbogr::plan
