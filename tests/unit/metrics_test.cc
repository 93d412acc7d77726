#include "turbogr/run/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/crc32c.h"
#include "turbogr/core/output_file.h"
#include "turbogr/run/progress.h"

namespace turbogr {
namespace {

using test::message_of;
using test::TemporaryFolder;

MetricRecord step_record(std::int64_t step) {
  return {.step = step, .epoch = 0.5, .values = {{"loss", 2.25}, {"lr", 1e-3}}};
}

TEST(JsonLines, WritesOneObjectALineInOrder) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  JsonLines lines(path, std::nullopt);
  lines.write(step_record(20));
  lines.write({.step = 20, .epoch = 1.0, .split = "test", .values = {{"hr@10", 0.25}}});
  lines.write({.step = 40, .values = {{"loss", std::nan("")}}});
  // Read while the writer is open: every line is out at once.
  EXPECT_EQ(read_file(path),
            "{\"step\":20,\"epoch\":0.5,\"loss\":2.25,\"lr\":0.001}\n"
            "{\"step\":20,\"epoch\":1.0,\"split\":\"test\",\"hr@10\":0.25}\n"
            "{\"step\":40,\"epoch\":0.0,\"loss\":null}\n");
  const std::vector<MetricRecord> records = read_json_lines(path);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].values, step_record(20).values);
  EXPECT_EQ(records[1].split, "test");
  EXPECT_TRUE(records[2].values.empty());
}

TEST(JsonLines, ANewRunRefusesAnOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  JsonLines(path, std::nullopt).write(step_record(1));
  EXPECT_NE(message_of([&] { JsonLines(path, std::nullopt); }).find("is there already"),
            std::string::npos);
  EXPECT_NE(message_of([&] { JsonLines("/nowhere/x", std::nullopt); }).find("cannot open"),
            std::string::npos);
}

TEST(JsonLines, ResumeCutsATornLineAndWhatWillComeAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string kept = "{\"step\":10}\n{\"step\":20}\n";
  for (const std::string tail :
       {"", "{\"step\":3", "{\"step\":30}\n{\"step\":40}\n", "{\"st\n", "{\"step\":30,\"loss\":"}) {
    std::ofstream(path, std::ios::trunc) << kept << tail;
    JsonLines(path, 20).write({.step = 21});
    EXPECT_EQ(read_file(path), kept + "{\"step\":21,\"epoch\":0.0}\n") << tail;
  }
  // A resumed run without a file starts one.
  JsonLines(folder / "other", 20).write({.step = 21});
  EXPECT_EQ(read_json_lines(folder / "other").size(), 1u);
}

TEST(JsonLines, AnEvaluationThatComesAgainAfterAResumeIsWrittenOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const MetricRecord test = {.step = 20, .epoch = 1, .split = "test", .values = {{"mrr", 0.5}}};
  JsonLines(path, std::nullopt).write(test);
  JsonLines resumed(path, 20);
  resumed.write(test);
  EXPECT_EQ(read_json_lines(path).size(), 1u);
  MetricRecord other = test;
  other.values[0].second = 0.25;
  resumed.write(other);
  EXPECT_EQ(read_json_lines(path).size(), 2u);
}

TEST(JsonLines, ReadingSkipsAndCountsWhatIsNoRecord) {
  const TemporaryFolder folder;
  std::ofstream(folder / "m") << "{\"step\":1,\"note\":\"x\",\"loss\":1}\n\nnonsense\n[1]\n"
                                 "{\"loss\":1}\n{\"step\":2,\"epoch\":\"x\"}\n{\"step\":3";
  std::int64_t skipped = 0;
  EXPECT_EQ(read_json_lines(folder / "m", &skipped).size(), 2u);
  EXPECT_EQ(skipped, 4);
}

TEST(JsonLines, AFullDiskIsAnError) {
  JsonLines full("/dev/full", std::nullopt);
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
  TensorBoardEvents events(folder.path(), std::nullopt);
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
  const TensorBoardEvents before(folder.path(), std::nullopt);
  const TensorBoardEvents after(folder.path(), 9);
  EXPECT_NE(before.path(), after.path());
  const std::vector<std::string> messages = frames_of(read_file(after.path()));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\x0a\x3a\x02\x08\x01", 6));
  EXPECT_NE(message_of([] { TensorBoardEvents("/dev/null/x", std::nullopt); }).find("cannot make"),
            std::string::npos);
}

TEST(TensorBoardEvents, TensorBoardItselfReadsThem) {
  if (std::system("python3 -c 'import tensorboard' 2> /dev/null") != 0) {
    GTEST_SKIP() << "python3 has no tensorboard package";
  }
  const TemporaryFolder folder;
  TensorBoardEvents events(folder.path(), std::nullopt);
  events.write({.step = 300, .values = {{"loss", 1.5}, {"lr", 0.25}}});
  events.write({.step = 400, .split = "test", .values = {{"hr@10", 0.5}}});
  TensorBoardEvents resumed(folder.path(), 350);
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

TEST(Progress, TextsOfTimesAndCounts) {
  EXPECT_EQ(duration_text(-3), "0:00");
  EXPECT_EQ(duration_text(7.4), "0:07");
  EXPECT_EQ(duration_text(750), "12:30");
  EXPECT_EQ(duration_text(11109), "3:05:09");
  EXPECT_EQ(duration_text(2 * 86400 + 4 * 3600), "2d 04:00");
  EXPECT_EQ(grouped_text(0), "0");
  EXPECT_EQ(grouped_text(999), "999");
  EXPECT_EQ(grouped_text(98304), "98,304");
  EXPECT_EQ(grouped_text(-1234567), "-1,234,567");
}

TEST(Progress, LinesKeepTheirColumns) {
  const ProgressFigures early = {.step = 20,
                                 .epoch = 0.1,
                                 .loss = 6.9315,
                                 .grad_norm = 0.871,
                                 .lr = 1e-5,
                                 .tokens_per_s = 9876.0,
                                 .mfu_causal = 0.042};
  const ProgressFigures late = {.step = 12000,
                                .epoch = 101,
                                .loss = 12.5,
                                .grad_norm = 123.4,
                                .lr = 3e-4,
                                .tokens_per_s = 1234567.0,
                                .mfu_causal = 0.512};
  EXPECT_EQ(progress_line(early, 12000, 75.0),
            "step      20/12000   epoch    0.10   loss   6.9315   norm    0.871   lr 1.00e-05   "
            "      9,876 tok/s   mfu   4.2%   left     1:15");
  EXPECT_EQ(progress_line(late, 12000, 0.0).size(), progress_line(early, 12000, 75.0).size());
  EXPECT_EQ(progress_line(early, 0, -1.0).find("left"), std::string::npos);
}

TEST(Progress, TheBarFitsItsTerminal) {
  const ProgressFigures half = {
      .step = 500, .loss = 2.3148, .tokens_per_s = 98304.0, .mfu_causal = 0.381};
  EXPECT_EQ(progress_bar(half, 1000, 36.0, 90),
            " 50% [############............] 500/1000  loss 2.3148  98,304 tok/s  "
            "mfu 38.1%  left 0:36");
  EXPECT_EQ(progress_bar(half, 1000, 36.0, 62).find('['), std::string::npos);
  for (const int columns : {1, 10, 40, 65, 70, 80, 200}) {
    EXPECT_LE(progress_bar(half, 1000, 36.0, columns).size(),
              static_cast<std::size_t>(std::max(columns - 1, 1)));
  }
  EXPECT_EQ(progress_bar(half, 0, -1.0, 80), " 500  loss 2.3148  98,304 tok/s  mfu 38.1%");
}

std::string printed(Progress::Style style, const std::function<void(Progress&)>& body) {
  const TemporaryFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  {
    Progress progress(out, style, 100);
    body(progress);
  }
  std::fclose(out);
  return read_file(folder / "out");
}

TEST(Progress, LinesAreWholeLinesAndNothingElse) {
  const std::string text = printed(Progress::Style::kLines, [](Progress& progress) {
    progress.update({.step = 10});
    progress.clear();
    progress.update({.step = 20});
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(printed(Progress::Style::kNone, [](Progress& p) { p.update({.step = 1}); }), "");
}

TEST(Progress, TheBarRedrawsInPlaceSparinglyAndAlwaysShowsTheEnd) {
  const std::string text = printed(Progress::Style::kBar, [](Progress& progress) {
    for (std::int64_t step = 1; step <= 100; ++step) progress.update({.step = step});
    progress.pause();
    progress.resume();
  });
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 5);
  EXPECT_NE(text.find("100/100"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  const std::string cleared = printed(Progress::Style::kBar, [](Progress& progress) {
    progress.update({.step = 1});
    progress.clear();
  });
  EXPECT_TRUE(cleared.ends_with("\r\x1b[K")) << cleared;
}

TEST(Progress, TheStyleFollowsTheWordAndTheTerminal) {
  std::FILE* file = std::fopen("/dev/null", "w");
  EXPECT_EQ(Progress::choose("auto", file), Progress::Style::kLines);
  EXPECT_EQ(Progress::choose("bar", file), Progress::Style::kBar);
  EXPECT_EQ(Progress::choose("lines", file), Progress::Style::kLines);
  EXPECT_EQ(Progress::choose("none", file), Progress::Style::kNone);
  EXPECT_NE(message_of([&] { Progress::choose("loud", file); }).find("'loud'"), std::string::npos);
  std::fclose(file);
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal >= 0 && isatty(terminal) != 0) {
    std::FILE* tty = fdopen(terminal, "w");
    EXPECT_EQ(Progress::choose("auto", tty), Progress::Style::kBar);
    std::fclose(tty);
  }
}

}  // namespace
}  // namespace turbogr
