#include "turbogr/run/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/run/config.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/timeline.h"

namespace turbogr {
namespace {

using nlohmann::json;
using test::message_of;
using test::TemporaryFolder;

// What the page's script will see.
json data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

const json* chart_named(const json& data, const std::string& title) {
  for (const json& chart : data["charts"]) {
    if (chart["title"] == title) return &chart;
  }
  return nullptr;
}

void write_run(const std::string& folder, int lines) {
  run::JsonLines log(folder + "/metrics.jsonl", std::nullopt);
  for (int i = 1; i <= lines; ++i) {
    log.write({.step = 10 * i,
               .epoch = 0.1 * i,
               .values = {{"loss", 5.0 - i * 1e-3},
                          {"lr", 1e-3},
                          {"grad_norm", 0.5},
                          {"tokens_per_s", 1000.0 + i},
                          {"mfu_causal", 0.3},
                          {"mfu_paper", 0.4}}});
  }
  for (const int step : {10, 20}) {
    log.write({.step = step, .split = "validation", .values = {{"hr@10", 0.3}, {"ndcg@10", 0.2}}});
    log.write({.step = step,
               .split = "test",
               .values = {{"hr@10", 0.31 - step * 1e-3}, {"ndcg@10", 0.2}, {"mrr", 0.1}}});
  }
}

TEST(Report, ShowsEveryCurveLengthsAndTheConfiguration) {
  const TemporaryFolder folder;
  write_run(folder.path(), 5);
  replace_file(folder / "config.toml",
               run::config_text(run::parse_config("[model]\nlayers = 7\n", "run.toml")));
  run::write_lengths(folder / "lengths.json", run::length_histogram({3, 4, 4, 9}));
  const std::string path = run::write_report(folder.path());
  EXPECT_EQ(path, folder / "report.html");
  const json data = data_of(read_file(path));
  for (const char* title : {"Loss", "Hit rate", "NDCG", "MRR", "Throughput, tokens/s",
                            "Model FLOPs utilisation", "Learning rate", "Gradient norm"}) {
    EXPECT_NE(chart_named(data, title), nullptr) << title;
  }
  const json& loss = (*chart_named(data, "Loss"))["lines"];
  ASSERT_EQ(loss.size(), 1u);
  EXPECT_EQ(loss[0]["points"].size(), 5u);
  EXPECT_TRUE(data["calibrations"].empty()) << "a run of the retrieval task";
  EXPECT_EQ(loss[0]["points"][1], json({20.0, 4.998}));
  const json& hits = (*chart_named(data, "Hit rate"))["lines"];
  ASSERT_EQ(hits.size(), 2u);
  EXPECT_EQ(hits[0]["name"], "hr@10 test");
  EXPECT_EQ(hits[1]["name"], "hr@10 validation");
  EXPECT_TRUE(hits[1]["dashed"]);
  EXPECT_EQ(hits[0]["colour"], hits[1]["colour"]);
  EXPECT_EQ((*chart_named(data, "Model FLOPs utilisation"))["lines"].size(), 2u);
  EXPECT_EQ(data["evaluations"]["rows"].size(), 4u);
  EXPECT_TRUE(data["evaluations"]["rows"][0][5].is_null());  // validation has no mrr
  EXPECT_EQ(data["lengths"]["bins"].size(), 7u);
  EXPECT_EQ(data["config"]["sections"]["model"][1], json({"layers", "7", true}));
  EXPECT_EQ(data["config"]["sections"]["model"][0], json({"kind", "\"hstu\"", false}));
  EXPECT_EQ(data["summary"], "hstu, 7 layers x 64 wide, bias both");
  EXPECT_EQ(data["last_step"], 50.0);
  bool best_seen = false;
  for (const json& tile : data["tiles"]) {
    if (tile["label"] != "test hr@10") continue;
    best_seen = true;
    EXPECT_EQ(tile["value"], "0.2900");
    EXPECT_EQ(tile["note"], "best 0.3000 at step 10");
  }
  EXPECT_TRUE(best_seen);
}

TEST(Report, SaysByWhichRuleSeenItemsWereCounted) {
  const auto evaluations = [](const std::string& config) {
    const TemporaryFolder folder;
    run::JsonLines log(folder / "metrics.jsonl", std::nullopt);
    log.write({.step = 1,
               .split = "test",
               .values = {{"hr@10", 0.5}, {"users", 500}, {"repeats", 0.762}}});
    replace_file(folder / "config.toml", config);
    return data_of(run::report_page(folder.path()))["evaluations"];
  };
  EXPECT_EQ(
      evaluations("[eval]\nseen = \"keep\"\n")["note"],
      "Seen items stay candidates (eval.seen = \"keep\"); met before: 76.2% of test targets.");
  const json dropped = evaluations("[eval]\nseen = \"drop\"\n");
  EXPECT_EQ(dropped["note"],
            "Seen items dropped: a target met before is a miss (eval.seen = \"drop\"); met before: "
            "76.2% of test targets.");
  EXPECT_EQ(dropped["names"], json({"hr@10"}));  // users and repeats are no figures of quality
  EXPECT_EQ(evaluations("")["note"],
            "Seen items removed, but never the target: the rule before eval.seen.");
}

TEST(Report, ShowsTheNewestCalibrationOfEachTaskAndSplit) {
  const TemporaryFolder folder;
  run::JsonLines log(folder / "metrics.jsonl", std::nullopt);
  const auto write = [&](std::int64_t step, const std::string& split, double predicted) {
    log.write({.step = step,
               .split = split,
               .values = {{"auc", 0.5}},
               .calibration = {{"like", {{30, predicted, 0.5}, {12, 0.9, 1.0}}},
                               {"share", {{42, 0.01, 0.0}}}}});
  };
  write(1000, "validation", 0.1);
  write(2000, "validation", 0.2);
  write(2000, "test", 0.3);
  replace_file(folder / "config.toml", "task = \"ranking\"\n[eval]\ngroup = \"request\"\n");
  const json data = data_of(run::report_page(folder.path()));
  const json& charts = data["calibrations"];
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0]["title"], "Calibration of like");
  EXPECT_EQ(charts[1]["title"], "Calibration of share");
  const json& lines = charts[0]["lines"];
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["name"], "test, step 2,000, 42 targets");
  EXPECT_EQ(lines[0]["bins"], json({{0.3, 0.5, 30}, {0.9, 1.0, 12}}));
  EXPECT_FALSE(lines[0]["dashed"]);
  EXPECT_EQ(lines[1]["name"], "validation, step 2,000, 42 targets");
  EXPECT_EQ(lines[1]["bins"][0], json({0.2, 0.5, 30}));
  EXPECT_TRUE(lines[1]["dashed"]);
  EXPECT_EQ(data["evaluations"]["note"],
            "GAUC compares the targets of each request (eval.group = \"request\").");
  EXPECT_EQ(data["evaluations"]["names"], json({"auc"}));
}

TEST(Report, SaysWhatMfuIsAShareOf) {
  const auto peak = [](const std::string& config, double logged, double later = 0) {
    const TemporaryFolder folder;
    run::JsonLines log(folder / "metrics.jsonl", std::nullopt);
    run::MetricRecord record{.step = 1, .values = {{"loss", 2.0}, {"mfu_causal", 0.3}}};
    if (logged > 0) record.values.emplace_back("peak_tflops", logged);
    record.values.emplace_back("skipped_steps", 2.0);
    log.write(record);
    record.step = 2;
    if (later > 0) {
      record.values[2].second = later;
      log.write(record);
    }
    replace_file(folder / "config.toml", config);
    std::string text;
    const json data = data_of(run::report_page(folder.path()));
    for (const json& tile : data["tiles"]) {
      if (tile["label"] == "MFU peak") {
        text = tile["value"].get<std::string>() + ", " + tile["note"].get<std::string>();
      }
    }
    EXPECT_EQ(data["tiles"].back()["label"], "skipped steps");
    EXPECT_EQ(data["tiles"].back()["value"], "2");
    return text;
  };
  EXPECT_EQ(peak("[train]\npeak_tflops = 989.0\n", 989), "989 TFLOP/s, set by train.peak_tflops");
  EXPECT_EQ(peak("[train]\npeak_tflops = 989.0\n", 0), "989 TFLOP/s, set by train.peak_tflops");
  EXPECT_EQ(peak("", 0.1874), "0.187 TFLOP/s, measured at the run's start: the best large product");
  EXPECT_EQ(peak("", 0.1, 0.2),
            "0.1 to 0.2 TFLOP/s, measured several times: the best large product");
  EXPECT_EQ(peak("", 0), "");
}

TEST(Report, NeedsNoNetwork) {
  const TemporaryFolder folder;
  write_run(folder.path(), 2);
  std::string page = run::report_page(folder.path());
  // The name of SVG looks like an address but is never fetched.
  constexpr std::string_view kSvg = "http://www.w3.org/2000/svg";
  for (std::size_t at = 0; (at = page.find(kSvg)) != std::string::npos;)
    page.erase(at, kSvg.size());
  for (const char* word : {"http:", "https:", "//cdn", "src=", "@import", "<link"}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
}

TEST(Report, LongRunsAreThinnedToMeans) {
  const TemporaryFolder folder;
  write_run(folder.path(), 2500);
  const json data = data_of(run::report_page(folder.path()));
  const json& points = (*chart_named(data, "Loss"))["lines"][0]["points"];
  EXPECT_EQ(points.size(), 1000u);
  EXPECT_NEAR(points[0][0].get<double>(), 15.0, 1e-9);  // the mean of steps 10 and 20
  EXPECT_NEAR(points[0][1].get<double>(), 5.0 - 1.5e-3, 1e-9);
}

TEST(Report, HostileTextCannotEndTheScript) {
  const TemporaryFolder folder;
  write_run(folder.path(), 1);
  replace_file(folder / "config.toml", "[old]\nkey = \"</script><b>\xff\"\n");
  const std::string page = run::report_page(folder.path());
  const json data = data_of(page);
  EXPECT_NE(data["config"]["text"].get<std::string>().find("</script><b>"), std::string::npos);
  EXPECT_TRUE(data["lengths"].is_null());
}

// "<!--<script>" would make the page's own end of the script part of it.
TEST(Report, ANameLikeACommentLeavesThePageWhole) {
  const TemporaryFolder folder;
  const std::string run = folder / "<!--<script>";
  std::filesystem::create_directory(run);
  write_run(run, 1);
  const std::string page = run::report_page(run);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_EQ(data_of(page)["name"], "<!--<script>");
}

TEST(Report, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of([&] { run::report_page(folder / "none"); }).find("there is no run folder"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run::report_page(folder.path()); }).find("has no metrics.jsonl"),
            std::string::npos);
  std::ofstream(folder / "metrics.jsonl") << "torn";
  EXPECT_NE(message_of([&] { run::report_page(folder.path()); }).find("holds no figures"),
            std::string::npos);
  run::write_lengths(folder / "lengths.json", run::length_histogram({}));
  std::ofstream(folder / "metrics.jsonl") << "{\"step\":1}\ntorn";
  EXPECT_EQ(data_of(run::report_page(folder.path()))["skipped"], 1);
  std::ofstream(folder / "lengths.json") << "{}";
  const std::string message = message_of([&] { run::report_page(folder.path()); });
  EXPECT_NE(message.find("is not a length histogram"), std::string::npos);
  EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
}

TEST(Lengths, BinsCoverEveryLengthOnce) {
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{5},
                                                   {0},
                                                   {0, 0, 1},
                                                   {1, 2, 3, 1000},
                                                   {7, 7, 7},
                                                   {100, 228000, 8594, 8594},
                                                   {0, 50},
                                                   {199, 200, 200}}) {
    const run::LengthHistogram histogram = run::length_histogram(lengths, 12);
    std::int64_t total = 0;
    std::int64_t next = *std::min_element(lengths.begin(), lengths.end());
    for (const run::LengthHistogram::Bin& bin : histogram.bins) {
      EXPECT_EQ(bin.from, next);
      EXPECT_GE(bin.to, bin.from);
      const auto inside = std::count_if(lengths.begin(), lengths.end(), [&](std::int64_t length) {
        return length >= bin.from && length <= bin.to;
      });
      EXPECT_EQ(bin.count, inside);
      total += bin.count;
      next = bin.to + 1;
    }
    EXPECT_EQ(next, histogram.max + 1);
    EXPECT_EQ(total, histogram.count);
    EXPECT_LE(histogram.bins.size(), 13u);  // a bin of its own for length 0
  }
}

TEST(Lengths, QuantilesAndTheFileRoundTrip) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 100; i >= 0; --i) lengths.push_back(i);
  const TemporaryFolder folder;
  run::write_lengths(folder / "lengths.json", run::length_histogram(lengths));
  const run::LengthHistogram back = run::read_lengths(folder / "lengths.json");
  EXPECT_EQ(back.count, 101);
  EXPECT_EQ(back.mean, 50.0);
  EXPECT_EQ(back.p50, 50);
  EXPECT_EQ(back.p90, 90);
  EXPECT_EQ(back.p99, 99);
  EXPECT_EQ(back.max, 100);
  EXPECT_EQ(back.bins.size(), run::length_histogram(lengths).bins.size());
  EXPECT_NE(message_of([] { run::length_histogram({-1}); }).find("length -1"), std::string::npos);
  EXPECT_NE(message_of([] { run::length_histogram({1}, 0); }).find("0 bins"), std::string::npos);
}

// Two ranks, two whole steps after the first; a save between them counts for nothing.
constexpr std::string_view kTrace = R"({"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
{"ph":"X","name":"forward and backward","pid":0,"tid":0,"ts":0,"dur":100},
{"ph":"X","name":"wait for dense gradients","pid":0,"tid":0,"ts":100,"dur":10},
{"ph":"X","name":"forward and backward","pid":0,"tid":0,"ts":120,"dur":70},
{"ph":"X","name":"fetch rows","pid":0,"tid":1,"ts":90,"dur":60},
{"ph":"X","name":"an operator","pid":0,"tid":0,"ts":130,"dur":5},
{"ph":"X","name":"save","pid":0,"tid":0,"ts":195,"dur":1000},
{"ph":"X","name":"read batch","pid":0,"tid":0,"ts":1195,"dur":20},
{"ph":"X","name":"forward and backward","pid":0,"tid":0,"ts":1215,"dur":85},
{"ph":"X","name":"update rows","pid":0,"tid":0,"ts":1300,"dur":50},
{"ph":"X","name":"forward and backward","pid":1,"tid":0,"ts":0,"dur":100},
{"ph":"X","name":"fetch rows","pid":1,"tid":0,"ts":100,"dur":80},
{"ph":"X","name":"forward and backward","pid":1,"tid":0,"ts":180,"dur":60},
{"ph":"X","name":"forward and backward","pid":1,"tid":0,"ts":240,"dur":60}]})";

TEST(Timeline, SharesOutTheTimeOfEveryRank) {
  const TemporaryFolder folder;
  replace_file(folder / "trace.json", std::string(kTrace));
  const run::Timeline timeline = run::read_timeline(folder / "trace.json");
  EXPECT_EQ(timeline.ranks, 2);
  EXPECT_EQ(timeline.steps, 2);
  EXPECT_NEAR(timeline.seconds, 197.5e-6, 1e-12);  // 195 and 200 microseconds
  EXPECT_NEAR(timeline.share_of(train::StageKind::kCompute), (70 + 85 + 120) / 395.0, 1e-12);
  EXPECT_NEAR(timeline.share_of(train::StageKind::kSparse), 80 / 395.0, 1e-12);
  EXPECT_NEAR(timeline.share_of(train::StageKind::kDense), 10 / 395.0, 1e-12);
  EXPECT_NEAR(timeline.share_of(train::StageKind::kInput), 20 / 395.0, 1e-12);
  EXPECT_NEAR(timeline.bubbles(), 10 / 395.0, 1e-12);
  ASSERT_EQ(timeline.stages.size(), 4u);
  EXPECT_EQ(timeline.stages[1].name, "fetch rows");
  EXPECT_NEAR(timeline.stages[1].hidden, 50 / 395.0, 1e-12);  // from the first step's end on
  const std::string text = run::timeline_text(timeline);
  EXPECT_NE(text.find("2 steps of 2 ranks: compute 69.6%"), std::string::npos) << text;
  EXPECT_NE(text.find("sparse communication"), std::string::npos) << text;

  write_run(folder.path(), 1);
  const json data = data_of(run::report_page(folder.path()));
  EXPECT_EQ(data["timeline"]["rows"].size(), 4u);
  EXPECT_NEAR(data["timeline"]["shares"]["exposed sparse"].get<double>(), 80 / 395.0, 1e-12);
  replace_file(folder / "trace.json", "{\"traceEvents\":[]}");
  EXPECT_NE(message_of([&] {
              run::read_timeline(folder / "trace.json");
            }).find("shows no two training steps"),
            std::string::npos);
  EXPECT_TRUE(data_of(run::report_page(folder.path()))["timeline"].is_null());
  replace_file(folder / "trace.json", "half");
  EXPECT_NE(message_of([&] { run::read_timeline(folder / "trace.json"); }).find("is not a trace"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr
