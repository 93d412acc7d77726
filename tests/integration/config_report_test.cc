// `turbogr config` and `turbogr report` as a user runs them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/browser.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/run/config.h"

namespace turbogr {
namespace {

struct Outcome {
  int status;
  std::string text;  // both outputs
};

Outcome run(const std::string& arguments) {
  const std::string command = test::program() + " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome{-1, ""};
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), got);
  }
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

const std::string kDemo = test::source_dir() + "/configs/demo.toml";

TEST(ConfigCommand, PrintsTheResolvedConfigThatParsesToTheSame) {
  const Outcome printed =
      run("config --train.steps 7 " + kDemo + " --model.kind=fuxi --run.dir data");
  ASSERT_EQ(printed.status, 0) << printed.text;
  const run::Config config = run::parse_config(printed.text, "printed");
  EXPECT_EQ(
      config,
      run::load_config(kDemo, {{"train.steps", "7"}, {"model.kind", "fuxi"}, {"run.dir", "data"}}));
  EXPECT_EQ(config.train.steps, 7);
}

TEST(ConfigCommand, FailsWithTheNearestKeyAndAStatus) {
  const Outcome wrong = run("config " + kDemo + " --train.step=7");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.text.find("'train.steps'"), std::string::npos) << wrong.text;
  EXPECT_EQ(run("config").status, 1);
}

TEST(ConfigCommand, ListsTheKeys) {
  const Outcome keys = run("config --keys");
  EXPECT_EQ(keys.status, 0);
  EXPECT_NE(keys.text.find("model.norm_length"), std::string::npos);
  const Outcome both = run("config --keys train.steps");
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.text.find("--keys lists every key there is; leave out 'train.steps'"),
            std::string::npos)
      << both.text;
}

TEST(ReportCommand, WritesThePageAndSaysWhere) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "metrics.jsonl") << "{\"step\":1,\"epoch\":0.1,\"loss\":2.0}\n";
  const Outcome report = run("report " + folder.path().string());
  EXPECT_EQ(report.status, 0) << report.text;
  EXPECT_EQ(report.text, (folder / "report.html").string() + "\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "report.html"));
  const Outcome elsewhere =
      run("report " + folder.path().string() + " --out " + (folder / "x.html").string());
  EXPECT_TRUE(std::filesystem::exists(folder / "x.html")) << elsewhere.text;
  EXPECT_EQ(run("report " + (folder / "none").string()).status, 1);
}

TEST(ReportCommand, ABrowserDrawsThePage) {
  const std::string browser = test::find_browser();
  if (browser.empty()) GTEST_SKIP() << "no browser; install chromium-headless-shell";
  const test::TemporaryFolder folder;
  std::ofstream(folder / "metrics.jsonl")
      << "{\"step\":1,\"epoch\":0.1,\"loss\":2.0}\n"
         "{\"step\":9,\"epoch\":0.9,\"loss\":1.5}\n"
      << R"({"step":9,"epoch":0.9,"split":"test","auc":0.7,)"
      << R"("calibration":{"like":[)"
      << R"({"targets":40,"predicted":0.125,"observed":0.25},)"
      << R"({"targets":41,"predicted":0.5,"observed":0}]}})" << '\n';
  ASSERT_EQ(run("report " + folder.path().string()).status, 0);
  const test::Outcome drawn = test::draw_page(browser, (folder / "report.html").string());
  ASSERT_EQ(drawn.status, 0) << drawn.output;
  EXPECT_FALSE(test::has(drawn, "Uncaught")) << drawn.output;
  EXPECT_TRUE(test::has(drawn, "<path fill=\"none\"")) << drawn.output;
  EXPECT_TRUE(test::has(drawn, "Calibration of like")) << drawn.output;
  EXPECT_TRUE(test::has(drawn, "predicted 12.5%, came true 25.0% of 40 targets")) << drawn.output;
  EXPECT_FALSE(test::has(drawn, "NaN")) << drawn.output;
}

}  // namespace
}  // namespace turbogr
