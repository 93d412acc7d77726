#include "turbogr/run/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/crc32c.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

using test::message_of;
using test::TemporaryFolder;

run::MetricRecord step_record(std::int64_t step) {
  return {.step = step, .epoch = 0.5, .values = {{"loss", 2.25}, {"lr", 1e-3}}};
}

TEST(JsonLines, WritesOneObjectALineInOrder) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  run::JsonLines lines(path, std::nullopt);
  lines.write(step_record(20));
  lines.write({.step = 20, .epoch = 1.0, .split = "test", .values = {{"hr@10", 0.25}}});
  lines.write({.step = 40, .values = {{"loss", std::nan("")}}});
  // Read while the writer is open: every line is out at once.
  EXPECT_EQ(read_file(path),
            "{\"step\":20,\"epoch\":0.5,\"loss\":2.25,\"lr\":0.001}\n"
            "{\"step\":20,\"epoch\":1.0,\"split\":\"test\",\"hr@10\":0.25}\n"
            "{\"step\":40,\"epoch\":0.0,\"loss\":null}\n");
  const std::vector<run::MetricRecord> records = run::read_json_lines(path);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].values, step_record(20).values);
  EXPECT_EQ(records[1].split, "test");
  EXPECT_TRUE(records[2].values.empty());
}

TEST(JsonLines, KeepsTheCalibrationOfEachTask) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  run::JsonLines(path, std::nullopt)
      .write({.step = 3,
              .split = "test",
              .values = {{"auc", 0.5}},
              .calibration = {{"like", {{4, 0.25, 0.5}, {3, 0.75, 1.0}}}, {"share", {}}}});
  EXPECT_EQ(read_file(path),
            R"({"step":3,"epoch":0.0,"split":"test","auc":0.5,"calibration":{"like":[)"
            R"({"targets":4,"predicted":0.25,"observed":0.5},)"
            R"({"targets":3,"predicted":0.75,"observed":1.0}],"share":[]}})"
            "\n");
  std::ofstream(path, std::ios::app)
      << R"({"step":4,"calibration":{"a":[{"targets":1},7],"b":3,"c":[{"targets":"x"}]}})" << '\n'
      << R"({"step":5,"calibration":[1]})" << '\n';
  const std::vector<run::MetricRecord> records = run::read_json_lines(path);
  ASSERT_EQ(records.size(), 3u);
  ASSERT_EQ(records[0].calibration.size(), 1u) << "a task without bins has nothing to show";
  EXPECT_EQ(records[0].calibration[0].task, "like");
  ASSERT_EQ(records[0].calibration[0].bins.size(), 2u);
  EXPECT_EQ(records[0].calibration[0].bins[1].targets, 3);
  EXPECT_EQ(records[0].calibration[0].bins[1].predicted, 0.75);
  EXPECT_EQ(records[0].calibration[0].bins[1].observed, 1.0);
  EXPECT_TRUE(records[1].calibration.empty());
  EXPECT_TRUE(records[2].calibration.empty());
}

TEST(JsonLines, ANewRunRefusesAnOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  run::JsonLines(path, std::nullopt).write(step_record(1));
  EXPECT_NE(message_of([&] { run::JsonLines(path, std::nullopt); }).find("is there already"),
            std::string::npos);
  EXPECT_NE(message_of([&] { run::JsonLines("/nowhere/x", std::nullopt); }).find("cannot create"),
            std::string::npos);
}

TEST(JsonLines, ResumeCutsATornLineAndWhatWillComeAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string kept = "{\"step\":10}\n{\"step\":20}\n";
  for (const std::string tail :
       {"", "{\"step\":3", "{\"step\":30}\n{\"step\":40}\n", "{\"st\n", "{\"step\":30,\"loss\":"}) {
    std::ofstream(path, std::ios::trunc) << kept << tail;
    run::JsonLines(path, 20).write({.step = 21});
    EXPECT_EQ(read_file(path), kept + "{\"step\":21,\"epoch\":0.0}\n") << tail;
  }
  // A resumed run without a file starts one.
  run::JsonLines(folder / "other", 20).write({.step = 21});
  EXPECT_EQ(run::read_json_lines(folder / "other").size(), 1u);
}

TEST(JsonLines, AnEvaluationThatComesAgainAfterAResumeIsWrittenOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const run::MetricRecord test = {
      .step = 20, .epoch = 1, .split = "test", .values = {{"mrr", 0.5}}};
  run::JsonLines(path, std::nullopt).write(test);
  run::JsonLines resumed(path, 20);
  resumed.write(test);
  EXPECT_EQ(run::read_json_lines(path).size(), 1u);
  run::MetricRecord other = test;
  other.values[0].second = 0.25;
  resumed.write(other);
  EXPECT_EQ(run::read_json_lines(path).size(), 2u);
}

// Of the lines before it, nothing else.
std::string note_of(const std::vector<run::MetricRecord>& records) {
  for (const run::MetricRecord& record : records) {
    if (!record.note.empty()) return record.note;
  }
  return "";
}

TEST(JsonLines, AFileRemovedOrCutWhileItIsWrittenSaysSo) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  run::JsonLines lines(path, std::nullopt);
  lines.write(step_record(10));
  std::filesystem::remove(path);
  lines.write(step_record(20));
  std::vector<run::MetricRecord> records = run::read_json_lines(path);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(note_of(records).find("figures up to step 20 are missing"), std::string::npos);
  EXPECT_EQ(records[1].step, 20);
  lines.write(step_record(30));
  EXPECT_EQ(run::read_json_lines(path).size(), 3u);  // said once
  std::filesystem::resize_file(path, 0);
  lines.write(step_record(40));
  records = run::read_json_lines(path);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(note_of(records).find("figures up to step 40 are missing"), std::string::npos);
  EXPECT_TRUE(lines.logged().are_in(read_file(path)));
}

TEST(JsonLines, AFileThatLostLinesBetweenTwoRunsSaysSo) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  run::LoggedBytes logged;
  {
    run::JsonLines lines(path, std::nullopt);
    for (const std::int64_t step : {10, 20}) lines.write(step_record(step));
    logged = lines.logged();
    lines.write(step_record(30));  // of steps that will be done again
  }
  const std::string whole = read_file(path);
  const auto resumed = [&](const std::string& found) {
    std::ofstream(path, std::ios::trunc) << found;
    run::JsonLines lines(path, 20, logged);
    EXPECT_TRUE(lines.logged().are_in(read_file(path)));
    return note_of(run::read_json_lines(path));
  };
  EXPECT_EQ(resumed(whole), "");
  EXPECT_EQ(resumed(whole.substr(0, logged.bytes)), "");
  const std::string missing = "figures up to step 20 are missing";
  EXPECT_NE(resumed("").find(missing), std::string::npos);
  EXPECT_NE(resumed(whole.substr(0, logged.bytes - 1)).find(missing), std::string::npos);
  EXPECT_NE(resumed(whole.substr(whole.find('\n') + 1)).find(missing), std::string::npos);
  std::filesystem::remove(path);
  run::JsonLines lines(path, 20, logged);
  EXPECT_NE(note_of(run::read_json_lines(path)).find(missing), std::string::npos);
  EXPECT_EQ(run::LoggedBytes::of({{"metrics", logged.to_json()}})->bytes, logged.bytes);
  EXPECT_FALSE(run::LoggedBytes::of(nlohmann::json::object()));
}

TEST(JsonLines, ReadingSkipsAndCountsWhatIsNoRecord) {
  const TemporaryFolder folder;
  std::ofstream(folder / "m") << "{\"step\":1,\"note\":\"x\",\"loss\":1}\n\nnonsense\n[1]\n"
                                 "{\"loss\":1}\n{\"step\":2,\"epoch\":\"x\"}\n{\"step\":3";
  std::int64_t skipped = 0;
  EXPECT_EQ(run::read_json_lines(folder / "m", &skipped).size(), 2u);
  EXPECT_EQ(skipped, 4);
}

TEST(JsonLines, AFullDiskIsAnError) {
  run::JsonLines full("/dev/full", std::nullopt);
  EXPECT_NE(message_of([&] { full.write(step_record(1)); }).find("No space left"),
            std::string::npos);
}

// Takes the frames apart again, checking both masked sums, and returns the messages.
std::vector<std::string> frames_of(const std::string& file) {
  const auto masked = [](const char* data, std::size_t bytes) {
    const std::uint32_t crc = crc32c(0, data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::vector<std::string> messages;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t length = 0;
    std::uint32_t sum = 0;
    std::memcpy(&length, &file[at], 8);
    std::memcpy(&sum, &file[at + 8], 4);
    EXPECT_EQ(sum, masked(&file[at], 8));
    messages.push_back(file.substr(at + 12, length));
    std::memcpy(&sum, &file[at + 12 + length], 4);
    EXPECT_EQ(sum, masked(&file[at + 12], length));
    at += 16 + length;
  }
  return messages;
}

TEST(TensorBoardEvents, FramesHoldTheEncodedScalars) {
  const TemporaryFolder folder;
  run::TensorBoardEvents events(folder.path(), std::nullopt);
  events.write({.step = 300, .values = {{"loss", 1.5}}});
  const std::vector<std::string> messages = frames_of(read_file(events.path()));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  // step 300 as a varint; summary { value { tag "train/loss" simple_value 1.5f } }
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0a", 9) +
                                       "train/loss" + std::string("\x15\x00\x00\xc0\x3f", 5));
}

TEST(TensorBoardEvents, AResumedRunTellsWhereItStartsInAFileOfItsOwn) {
  const TemporaryFolder folder;
  const run::TensorBoardEvents before(folder.path(), std::nullopt);
  const run::TensorBoardEvents after(folder.path(), 9);
  EXPECT_NE(before.path(), after.path());
  const std::vector<std::string> messages = frames_of(read_file(after.path()));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\x0a\x3a\x02\x08\x01", 6));
  EXPECT_NE(
      message_of([] { run::TensorBoardEvents("/dev/null/x", std::nullopt); }).find("cannot make"),
      std::string::npos);
}

TEST(TensorBoardEvents, TensorBoardItselfReadsThem) {
  if (std::system("python3 -c 'import tensorboard' 2> /dev/null") != 0) {
    GTEST_SKIP() << "python3 has no tensorboard package";
  }
  const TemporaryFolder folder;
  run::TensorBoardEvents events(folder.path(), std::nullopt);
  events.write({.step = 300, .values = {{"loss", 1.5}, {"lr", 0.25}}});
  events.write({.step = 400, .split = "test", .values = {{"hr@10", 0.5}}});
  run::TensorBoardEvents resumed(folder.path(), 350);
  resumed.write({.step = 351, .values = {{"loss", 0.75}}});
  std::ofstream(folder / "read.py")
      << "import sys\n"
         "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
         "events = EventAccumulator(sys.argv[1]); events.Reload()\n"
         "got = {tag: [(e.step, e.value) for e in events.Scalars(tag)]\n"
         "       for tag in events.Tags()['scalars']}\n"
         "assert got == {'train/loss': [(300, 1.5), (351, 0.75)], 'train/lr': [(300, 0.25)],\n"
         "               'test/hr@10': []}, got\n";
  const std::string command =
      "python3 '" + (folder / "read.py").string() + "' '" + folder.path().string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace turbogr
