// `turbogr plan` as people run it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/browser.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

const std::string kSmall =
    " --train.device=cuda --train.dtype=bf16 --train.tokens=2048"
    " --data.max_length=128 --negatives.set=batch ";

std::string plan(const std::string& more, const std::string& data = "movielens") {
  return "plan " + test::source_dir() + "/configs/demo.toml" + kSmall + "--data " + data + " " +
         more;
}

TEST(Plan, RefusesFiguresThatAreNotFiniteAndClustersThatAreTooLarge) {
  for (const std::string wrong : {"--mtbf inf", "--mtbf nan", "--disk-gbs inf", "--price inf"}) {
    const auto refused = test::run_program(plan("--nodes 2 --gpus 2 " + wrong));
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_NE(refused.output.find("no finite number"), std::string::npos) << refused.output;
  }
  for (const std::string option : {"--nodes", "--gpus", "--sharing", "--ranks", "--curve-ranks"}) {
    for (const std::string wrong : {"1000000", "4294967297", "1e9", "0"}) {
      const auto many = test::run_program(plan(option + " " + wrong));
      EXPECT_EQ(many.status, 2) << many.output;
      EXPECT_TRUE(test::has(many, option + ": '" + wrong + "' is no")) << many.output;
      EXPECT_TRUE(test::has(many, "from 1 to 65536")) << many.output;
    }
  }
  const auto product = test::run_program(plan("--nodes 3 --gpus 8 --sharing 60000"));
  EXPECT_EQ(product.status, 1) << product.output;
  EXPECT_TRUE(test::has(product,
                        "--nodes 3 with --gpus 8 and --sharing 60000: plans go from 1 to "
                        "65536 ranks"))
      << product.output;
  const auto long_plan =
      test::run_program(plan("--simulate --nodes 8192 --steps 9999 --train.tokens=1000000"));
  EXPECT_TRUE(test::has(long_plan, "lower --steps, --nodes, --gpus or train.tokens"))
      << long_plan.output;
}

// A search takes minutes: what its page needs is asked before it.
TEST(Plan, RefusesAPageThatCouldNotBeWrittenBeforeTheSearch) {
  const test::TemporaryFolder folder;
  const std::string page = (folder.path() / "plan.html").string();
  for (const auto& [more, part] : std::vector<std::pair<std::string, std::string>>{
           {"--html " + page + "/x", "there is no folder"},
           {"--html " + folder.path().string(), "is a folder; name the file to write"},
           {"--html " + page + " --curve-ranks 2,12", "--curve-ranks 12; wanted: a multiple of"}}) {
    const auto refused = test::run_program(plan("--nodes 1 --gpus 8 " + more));
    EXPECT_NE(refused.status, 0);
    EXPECT_TRUE(test::has(refused, part)) << refused.output;
    EXPECT_FALSE(test::has(refused, "figures of")) << refused.output;  // of a search that is done
  }
}

TEST(Plan, WantsAUserWithEnoughEvents) {
  const test::TemporaryFolder folder;
  const std::string store = (folder.path() / "store").string(), log = store + ".csv";
  test::write_file(log, "user_id,item_id,timestamp\n1,1,1\n1,2,2\n2,1,1\n");
  ASSERT_EQ(test::run_program("data prepare " + log + " --out " + store).status, 0);
  const auto refused = test::run_program(plan("--nodes 1 --gpus 2", store));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(test::has(refused, "has no user with enough events to plan by")) << refused.output;
}

TEST(Plan, SearchesSettingsAndSaysWhatAnEpochCosts) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.json").string();
  const test::Outcome run =
      test::run_program(plan("--nodes 2 --gpus 2 --price 4 --mtbf 1000 --explain --json " + file));
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* part : {"groups of 2", "groups of 4", "semi_async", "late rows", "linearity",
                           "at 4 a device and hour", "--dist.group=", "published:", "measured:",
                           "over machines", "other batch", "of its host", "is computed in vain",
                           "binds: ", "dealt by hash", "tables bf16", "between them: most"}) {
    EXPECT_TRUE(test::has(run, part)) << part << "\n" << run.output;
  }
  const auto json = nlohmann::json::parse(read_file(file));
  // Two group sizes, three schedules and two formats; groups over machines, tables in bf16 and rows
  // dealt the other way for the best of each kind of results; batches half and twice as large.
  EXPECT_EQ(json["choices"].size(), 12u + 3u * 3u + 2u);
  EXPECT_EQ(json["best"]["result"], "same");
  // Rows dealt the other way are faster by a ten thousandth: no key to set for that.
  EXPECT_EQ(json["best"]["placement"], "");
  EXPECT_GT(json["best"]["device_gib"].get<double>(), 0);
  const auto& simulation = json["best"]["simulation"];
  EXPECT_GT(simulation["mfu"].get<double>(), 0);
  EXPECT_LT(simulation["mfu"].get<double>(), 1);
  const auto& saves = json["checkpoints"];
  EXPECT_NEAR(saves["interval_s"].get<double>(),
              std::sqrt(2 * saves["save_s"].get<double>() * 1000 * 3600 / 2), 1e-3);
  EXPECT_GE(saves["every_steps"].get<std::int64_t>(), 1);
  // Every rank's memory, every link's bytes.
  ASSERT_EQ(json["best"]["memory_of_ranks"].size(), 4u);
  double most = 0, least = 1e9;
  for (const auto& rank : json["best"]["memory_of_ranks"]) {
    most = std::max(most, rank["device_gib"].get<double>());
    least = std::min(least, rank["device_gib"].get<double>());
    EXPECT_GT(rank["host_gib"].get<double>(), 0);
  }
  EXPECT_DOUBLE_EQ(most, json["best"]["device_gib"].get<double>());
  EXPECT_DOUBLE_EQ(least, json["best"]["least_device_gib"].get<double>());
  double sent = 0;
  EXPECT_EQ(json["best"]["links"]["ports"].size(), 4u);
  for (const auto& nic : json["best"]["links"]["nics"]) sent += nic["out_mb"].get<double>();
  EXPECT_NEAR(sent, 2 * simulation["nic_mb"].get<double>(), 1e-6);
  // What would help, most first; what binds is what is busiest.
  EXPECT_EQ(json["explain"]["binds"], simulation["busy"][0]["what"]);
  double gain = 1e9;
  for (const auto& change : json["explain"]["changes"]) {
    EXPECT_LE(change["gain"].get<double>(), gain);
    gain = change["gain"].get<double>();
  }
  EXPECT_GT(json["explain"]["changes"].size(), 15u);
  const double best = simulation["step_ms"];
  for (const auto& choice : json["choices"]) {
    if (choice["result"] == "same") {
      EXPECT_LE(best, 1.001 * choice["simulation"]["step_ms"].get<double>());
    }
  }
}

// A run's own lengths, in a CSV file: as many tokens a step as they allow.
TEST(Plan, TakesATableOfLengths) {
  const test::TemporaryFolder folder;
  const std::string lengths = (folder.path() / "lengths.csv").string();
  std::string text;
  for (int user = 0; user < 600; ++user) text += std::to_string(20 + user % 60) + "\n";
  test::write_file(lengths, text);
  const std::string file = (folder.path() / "plan.json").string();
  const test::Outcome run =
      test::run_program(plan("--nodes 1 --gpus 2 --simulate --steps 1 --json " + file, lengths));
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(test::has(run, "600 users")) << run.output;
  const auto json = nlohmann::json::parse(read_file(file));
  const double tokens = json["tokens_per_s"].get<double>() * json["step_ms"].get<double>() * 1e-3;
  EXPECT_GT(tokens, 0.9 * 2 * 2048);
  EXPECT_LE(tokens, 2 * 2048);
  test::write_file(lengths, "20\nmany\n");
  const test::Outcome wrong = test::run_program(plan("--nodes 1 --gpus 2 --simulate", lengths));
  EXPECT_EQ(wrong.status, 1) << wrong.output;
  EXPECT_TRUE(test::has(wrong, "lengths.csv")) << wrong.output;
}

TEST(Plan, WritesAPageOfItself) {
  const test::TemporaryFolder folder;
  const std::string page = (folder.path() / "plan.html").string();
  const test::Outcome run = test::run_program(
      plan("--nodes 1 --gpus 2 --html " + page + " --curve-ranks 1,2,4 --curve-tokens 512"));
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string text = read_file(page);
  const std::string begin = "id=\"data\">";
  const std::size_t from = text.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(text.substr(from, text.find("</script>", from) - from));
  EXPECT_EQ(data["charts"][0]["lines"][0]["points"].size(), 3u);
  EXPECT_GT(data["step"]["stages"].size(), 5u);
  EXPECT_EQ(data["choices"].size(), 8u + 3u * 2u);
}

TEST(Plan, ABrowserDrawsItsPage) {
  const std::string browser = test::find_browser();
  if (browser.empty()) GTEST_SKIP() << "no browser; install chromium-headless-shell";
  const test::TemporaryFolder folder;
  const std::string page = (folder.path() / "plan.html").string();
  ASSERT_EQ(test::run_program(plan("--nodes 1 --gpus 2 --html " + page +
                                   " --curve-ranks 1,2,4 --curve-tokens 512"))
                .status,
            0);
  const test::Outcome drawn = test::draw_page(browser, page);
  ASSERT_EQ(drawn.status, 0) << drawn.output;
  EXPECT_FALSE(test::has(drawn, "Uncaught")) << drawn.output;
  const auto count = [&](const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = drawn.output.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("<circle "), 12u);        // two charts of two lines over three counts of ranks
  EXPECT_GT(count("class=\"stage\""), 5u);  // one of them in the script
  EXPECT_EQ(count("class=\"part\""), 3u * 8u);  // three of each of the first settings
  EXPECT_TRUE(test::has(drawn, "<div class=\"label\">linearity</div>"));
}

TEST(Plan, WarnsOfPartsThatItTakesForSteps) {
  const test::Outcome parts =
      test::run_program(plan("--nodes 1 --gpus 2 --simulate --train.accumulate=2"));
  EXPECT_EQ(parts.status, 0) << parts.output;
  EXPECT_TRUE(test::has(parts, "takes every part of a step for a step")) << parts.output;
}

// A rank on this machine's processor, described and planned for.
TEST(Plan, TakesAMachineThatWasMeasured) {
  const test::TemporaryFolder folder;
  const std::string machine = (folder.path() / "machine.json").string();
  const test::Outcome bench = test::run_program(
      "bench machine --device cpu --tokens 512 --layers 1 --steps 2 --threads 1 --json " + machine);
  ASSERT_EQ(bench.status, 0) << bench.output;
  const auto json = nlohmann::json::parse(read_file(machine));
  EXPECT_EQ(json["gpu"]["device"], "cpu");
  EXPECT_FALSE(json.contains("network"));  // one rank
  const test::Outcome run =
      test::run_program(plan("--nodes 2 --gpus 1 --simulate --network eth25 --gpu " + machine));
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(test::has(run, "machine over eth25")) << run.output;
  const test::Outcome no_network = test::run_program(
      plan("--nodes 2 --gpus 1 --simulate --network " + machine + " --gpu " + machine));
  EXPECT_NE(no_network.status, 0);
  EXPECT_TRUE(test::has(no_network, "has no network")) << no_network.output;
}

TEST(Plan, SimulatesTheSameTwiceAndTraces) {
  const test::TemporaryFolder folder;
  const std::string one = (folder.path() / "one.json").string();
  const std::string two = (folder.path() / "two.json").string();
  const std::string trace = (folder.path() / "trace.json").string();
  const std::string more = "--ranks 64 --gpus 8 --simulate --steps 2 --trace-ranks 0,63 --trace ";
  ASSERT_EQ(test::run_program(plan(more + trace + " --json " + one)).status, 0);
  ASSERT_EQ(test::run_program(plan(more + trace + " --json " + two)).status, 0);
  auto first = nlohmann::json::parse(read_file(one)),
       second = nlohmann::json::parse(read_file(two));
  for (auto* json : {&first, &second}) {
    json->erase("plan_ms");  // the machine's own time
    json->erase("simulation_s");
    json->erase("simulation_processor_s");
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(read_file(trace).find("forward and backward"), std::string::npos);
}

TEST(Plan, SaysWhatTwoHopsWouldMerge) {
  const std::string cluster = "--nodes 4 --gpus 4 --simulate --dist.group=16 ";
  const test::Outcome two = test::run_program(plan(cluster + "--two-hops"));
  ASSERT_EQ(two.status, 0) << two.output;
  EXPECT_TRUE(test::has(two, "times fewer than its ranks have")) << two.output;
  const test::Outcome one = test::run_program(plan(cluster));
  EXPECT_FALSE(test::has(one, "times fewer than its ranks have")) << one.output;
}

TEST(Plan, SaysWhatIsWrong) {
  const auto says = [](const std::string& command, const std::string& part) {
    const test::Outcome run = test::run_program(command);
    EXPECT_NE(run.status, 0);
    EXPECT_TRUE(test::has(run, part)) << run.output;
  };
  says(plan("--gpu h900"), "h100, h200");
  says(plan("--network fast"), "eth25, ib400x8, roce200");
  says(plan("--ranks 12 --gpus 8"), "no multiple of --gpus");
  says(plan("--nodes 2", "nowhere"), "no store, world or file 'nowhere'");
  says(plan("--nodes 100 --simulate --trace t.json --trace-ranks 900"),
       "--trace-ranks names rank 900");
  says(plan("--nodes 1 --trace t.json"), "add --simulate");
  says(plan("--nodes 1 --features.a.from=item.a"), "[tables.a] rows = 1000");
  says(plan("--nodes 2 --gpus 2 --simulate --two-hops --dist.spread=true"), "use one of the two");
  says(plan("--nodes 1 --jitter 0.1"), "add --simulate");
  says(plan("--nodes 2 --two-hops"), "add --simulate");
  says(plan("--nodes 3 --gpus 4 --simulate --two-hops --dist.group=6"), "a multiple of 4");
  says(plan("--nodes 1 --simulate --price 3"), "leave out --simulate");
  const std::string one = "--nodes 1 --gpus 2 --simulate ";
  says(plan(one + "--jitter inf"), "a share from 0 to 1");
  says(plan(one + "--jitter nan"), "a share from 0 to 1");
  says(plan(one + "--slow-rank 1"), "go together");
  says(plan(one + "--slow-rank 1 --slow-factor nan"), "a number above 0");
  says(plan(one + "--slow-rank 99 --slow-factor 2"), "of 2 ranks");
  says(plan(one + "--slow-node 0 --slow-link 0"), "a share of the bandwidth");
}

TEST(Plan, ForgedDescriptionsEndInWords) {
  const test::TemporaryFolder folder;
  std::string network = read_file(test::source_dir() + "/turbogr/plan/machines/eth25.json");
  auto json = nlohmann::json::parse(network);
  const std::string file = (folder.path() / "forged.json").string();
  for (const auto& [nics, part] :
       std::vector<std::pair<nlohmann::json, std::string>>{{1e300, "below 10^12"},
                                                           {1e9, "a whole number from 1 to 1024"},
                                                           {0.5, "a whole number"},
                                                           {"many", "a number above 0"}}) {
    json["nics"]["value"] = nics;
    replace_file(file, json.dump());
    const test::Outcome run =
        test::run_program(plan("--nodes 2 --gpus 1 --simulate --network " + file));
    EXPECT_EQ(run.status, 1) << run.output;
    EXPECT_TRUE(test::has(run, part)) << run.output;
  }
  json["what"] = 3;
  replace_file(file, json.dump());
  const test::Outcome run = test::run_program(plan("--nodes 2 --network " + file));
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_TRUE(test::has(run, "does not describe a network")) << run.output;
  for (const std::string& text : {std::string("{\"what\": \"network\","), std::string("\xff"),
                                  std::string(1'000'000, '[') + std::string(1'000'000, ']')}) {
    replace_file(file, text);
    const test::Outcome no_json = test::run_program(plan("--nodes 2 --network " + file));
    EXPECT_EQ(no_json.status, 1) << no_json.output;
    EXPECT_TRUE(test::has(no_json, "' is not JSON; restore it")) << no_json.output;
    EXPECT_FALSE(test::has(no_json, "json.exception")) << no_json.output;
  }
}

// What is there and no plain file stays what it is; a limit on files ends in words.
TEST(Plan, WritesLikeTheOthers) {
  const test::TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  const test::Outcome kept = test::run_program(
      plan("--nodes 1 --gpus 1 --simulate --trace " + pipe),
      "mkfifo " + pipe + " && (cat " + pipe + " > /dev/null & true) && timeout 60 ");
  EXPECT_EQ(kept.status, 0) << kept.output;
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  const std::string file = (folder.path() / "plan.json").string();
  const test::Outcome limited =
      test::run_program(plan("--nodes 1 --gpus 1 --simulate --trace " + file), "ulimit -f 1; ");
  EXPECT_EQ(limited.status, 1) << limited.output;
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(file + ".partial"));
}

}  // namespace
}  // namespace turbogr
