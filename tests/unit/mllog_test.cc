// Logs in the form of MLPerf's logging package, read by its own compliance checker.
#include "turbogr/run/mllog.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"

namespace turbogr::run {
namespace {

using test::TemporaryFolder;

// With the published batch, as the file says.
Config shape() {
  return load_config(test::source_dir() + "/configs/dlrmv4.toml", {{"train.batch", "8192"},
                                                                   {"train.accumulate", "1"},
                                                                   {"optim.lr", "1e-6"},
                                                                   {"embedding.lr", "1e-6"},
                                                                   {"eval.every_steps", "280"}});
}

struct Evaluated {
  std::int64_t samples;
  double auc;
};

std::string log_of(const MlLogFacts& facts, const std::vector<Evaluated>& evaluations,
                   const std::string& path) {
  MlLog log(path, /*resumed=*/false);
  log.begin(facts);
  log.start();
  for (const Evaluated& each : evaluations) log.evaluation(each.samples, each.auc);
  log.stop(evaluations.back().samples, evaluations.back().auc >= kMlLogTarget);
  return path;
}

// What the official checker says: whether it accepts the log, and whose rules are broken.
struct Verdict {
  bool accepted = false;
  std::set<std::string> broken;
  std::string output;
};

Verdict verdict_on(const std::string& log, const TemporaryFolder& folder) {
  const std::string said = (folder / "said.txt").string();
  const std::string command =
      "python3 -m mlperf_logging.compliance_checker --usage training --ruleset 6.1.0 "
      "--log_output '" +
      (folder / "checker.log").string() + "' '" + log + "' > '" + said + "' 2>&1";
  Verdict verdict;
  verdict.accepted = std::system(command.c_str()) == 0;
  verdict.output = read_file(said);
  // Rules have names of these letters.
  constexpr const char* kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  for (const std::string before : {"CHECK for '", "Failed checks for ", "occurrence of '"}) {
    for (std::size_t at = verdict.output.find(before); at != std::string::npos;
         at = verdict.output.find(before, at + 1)) {
      const std::size_t begin = at + before.size();
      const std::size_t end = verdict.output.find_first_not_of(kNameLetters, begin);
      const std::string name = verdict.output.substr(begin, end - begin);
      if (!name.empty()) verdict.broken.insert(name);
    }
  }
  return verdict;
}

bool has_checker() {
  return std::system("python3 -c 'import mlperf_logging.compliance_checker' 2> /dev/null") == 0;
}

TEST(MlLog, LinesAreJsonAfterTheirMark) {
  const TemporaryFolder folder;
  const MlLogFacts facts = mllog_facts(shape(), 8, 1'000'000, 5'000);
  std::istringstream lines(read_file(log_of(facts, {{2'000, 0.5}}, (folder / "log").string())));
  std::set<std::string> keys;
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(line.starts_with(":::MLLOG ")) << line;
    const auto fields = nlohmann::json::parse(line.substr(9));
    keys.insert(fields.at("key"));
    if (fields.at("key") == "train_samples") {
      EXPECT_EQ(fields.at("value"), 1'000'000);
    }
    if (fields.at("key") == "submission_org") {
      EXPECT_NE(fields.at("value").get<std::string>().find("unofficial"), std::string::npos);
    }
    if (fields.at("key") == "run_stop") {
      EXPECT_EQ(fields.at("metadata").at("status"), "aborted");
    }
  }
  EXPECT_TRUE(keys.count("eval_accuracy") == 1 && keys.count("run_start") == 1);
}

TEST(MlLog, AResumedRunGoesOnInItsFile) {
  const TemporaryFolder folder;
  const std::string path = (folder / "log").string();
  log_of(mllog_facts(shape(), 1, 10, 10), {{1, 0.5}}, path);
  const std::string before = read_file(path);
  MlLog(path, /*resumed=*/true).evaluation(2, 0.6);
  EXPECT_TRUE(read_file(path).starts_with(before));
  EXPECT_GT(read_file(path).size(), before.size());
  MlLog(path, /*resumed=*/false).start();
  EXPECT_LT(read_file(path).size(), before.size());
}

TEST(MlLog, FactsAreTheConfigs) {
  Config config = shape();
  config.dist.gradients = "bf16";
  config.embedding.optimiser = "sgd";
  config.optim.weight_decay = 0.1;
  const MlLogFacts facts = mllog_facts(config, 4, 2'290'835'423, 7);
  EXPECT_EQ(facts.micro_batch, 2'048);
  config.train.accumulate = 8;
  EXPECT_EQ(mllog_facts(config, 4, 2'290'835'423, 7).micro_batch, 256);
  EXPECT_EQ(mllog_facts(config, 4, 2'290'835'423, 7).parts, 8);
  EXPECT_EQ(facts.eval_share, 0.001);
  EXPECT_EQ(facts.exchange, "bfloat16");
  EXPECT_EQ(facts.products, "bfloat16");
  EXPECT_EQ(facts.table_optimiser, "sgd");
  EXPECT_EQ(facts.dense_optimiser, "AdamW");
}

// A FIXTURE: counts and AUC are the published ones of the real data, written down here and measured
// by nobody. It shows that the writer and the config speak the rules' language.
TEST(MlLog, PythonsCheckerAcceptsThePublishedValues) {
  if (!has_checker()) GTEST_SKIP() << "python3 has no package mlperf-logging";
  const TemporaryFolder folder;
  MlLogFacts facts = mllog_facts(shape(), 8, 2'290'835'423, 2'058'204);
  facts.organisation = "fixture of a test, no result";
  // Evaluation 25 of one every 280 steps of 8,192 samples, then one more.
  const std::string log = log_of(facts, {{25 * 280 * 8'192, 0.74}, {26 * 280 * 8'192, 0.7501}},
                                 (folder / "fixture.txt").string());
  const Verdict verdict = verdict_on(log, folder);
  EXPECT_TRUE(verdict.accepted) << verdict.output;
  EXPECT_TRUE(verdict.broken.empty()) << verdict.output;
}

TEST(MlLog, PythonsCheckerNamesTheRulesThatGeneratedDataBreaks) {
  if (!has_checker()) GTEST_SKIP() << "python3 has no package mlperf-logging";
  const TemporaryFolder folder;
  // Other counts than the real data's, and an AUC before the evaluation that the rules begin with.
  const std::string log = log_of(mllog_facts(shape(), 1, 2'000'000, 80'000), {{280 * 8'192, 0.7}},
                                 (folder / "own.txt").string());
  const Verdict verdict = verdict_on(log, folder);
  EXPECT_FALSE(verdict.accepted);
  EXPECT_EQ(verdict.broken, (std::set<std::string>{"train_samples", "eval_samples",
                                                   "eval_every_data_pct", "eval_accuracy"}))
      << verdict.output;
}

}  // namespace
}  // namespace turbogr::run
