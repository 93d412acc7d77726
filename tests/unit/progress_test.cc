#include "turbogr/core/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/output_file.h"
#include "turbogr/run/training_progress.h"

namespace turbogr {
namespace {

using test::message_of;
using test::TemporaryFolder;

TEST(Progress, ShowsShareRateAndTimeLeft) {
  const std::string rate = Progress::rate_text(250e6, "B");
  EXPECT_EQ(rate, "250 MB/s");
  EXPECT_EQ(Progress::rate_text(0, "rows"), "0 rows/s");
  EXPECT_EQ(Progress::text_of({"reading", rate, .5, 2.0}, 80),
            "reading    [############            ]  50 %  250 MB/s  0:02 left");
  EXPECT_EQ(Progress::text_of({"reading", "5 kB  5 kB/s"}, 80), "reading    5 kB  5 kB/s");
  EXPECT_EQ(Progress::text_of({"sorting", "0 rows/s", 0}, 80),
            "sorting    [                        ]   0 %  0 rows/s");
}

TEST(Progress, CountsFromWhereAJobWasResumed) {
  Progress progress(false);
  progress.begin("training", 100, "steps", 90);
  EXPECT_LT(progress.seconds_left(90), 0);
  EXPECT_GE(progress.seconds_left(95), 0);
  EXPECT_EQ(progress.seconds_left(100), 0);
  progress.begin("reading", -1, "B");
  EXPECT_LT(progress.seconds_left(5), 0);
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

TEST(TrainingProgress, LinesKeepTheirColumns) {
  const run::TrainingFigures early = {.step = 20,
                                      .epoch = 0.1,
                                      .loss = 6.9315,
                                      .grad_norm = 0.871,
                                      .lr = 1e-5,
                                      .tokens_per_s = 9876.0,
                                      .mfu_causal = 0.042};
  const run::TrainingFigures late = {.step = 12000,
                                     .epoch = 101,
                                     .loss = 12.5,
                                     .grad_norm = 123.4,
                                     .lr = 3e-4,
                                     .tokens_per_s = 1234567.0,
                                     .mfu_causal = 0.512};
  EXPECT_EQ(run::training_line(early, 12000, 75.0),
            "step      20/12000   epoch    0.10   loss   6.9315   norm    0.871   lr 1.00e-05   "
            "      9,876 tok/s   mfu   4.2%   left     1:15");
  EXPECT_EQ(run::training_line(late, 12000, 0.0).size(),
            run::training_line(early, 12000, 75.0).size());
  EXPECT_EQ(run::training_line(early, 0, -1.0).find("left"), std::string::npos);
}

TEST(TrainingProgress, TheBarFitsItsTerminal) {
  const run::TrainingFigures half = {
      .step = 500, .loss = 2.3148, .tokens_per_s = 98304.0, .mfu_causal = 0.381};
  const std::string figures = run::bar_figures(half, 1000);
  const auto bar = [&](int columns) {
    return Progress::text_of({"training", figures, .5, 36.0}, columns);
  };
  EXPECT_EQ(bar(100),
            "training   [##########           ]  50 %  500/1000  loss 2.3148  98,304 tok/s  "
            "mfu 38.1%  0:36 left");
  EXPECT_EQ(bar(72).find('['), std::string::npos);
  for (const int columns : {1, 10, 40, 65, 70, 80, 200}) {
    EXPECT_LE(bar(columns).size(), static_cast<std::size_t>(std::max(columns - 1, 1)));
  }
  EXPECT_EQ(run::bar_figures(half, 0), "500  loss 2.3148  98,304 tok/s  mfu 38.1%");
}

std::string printed(run::TrainingProgress::Style style,
                    const std::function<void(run::TrainingProgress&)>& body) {
  const TemporaryFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  {
    run::TrainingProgress progress(out, style, 100);
    body(progress);
  }
  std::fclose(out);
  return read_file(folder / "out");
}

TEST(TrainingProgress, LinesAreWholeLinesAndNothingElse) {
  const std::string text =
      printed(run::TrainingProgress::Style::kLines, [](run::TrainingProgress& progress) {
        progress.update({.step = 10});
        progress.clear();
        progress.update({.step = 20});
      });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(printed(run::TrainingProgress::Style::kNone,
                    [](run::TrainingProgress& p) { p.update({.step = 1}); }),
            "");
}

TEST(TrainingProgress, TheBarRedrawsInPlaceSparinglyAndAlwaysShowsTheEnd) {
  const std::string text =
      printed(run::TrainingProgress::Style::kBar, [](run::TrainingProgress& progress) {
        for (std::int64_t step = 1; step <= 100; ++step) progress.update({.step = step});
        progress.pause();
        progress.resume();
      });
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 5);
  EXPECT_NE(text.find("100/100"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  const std::string cleared =
      printed(run::TrainingProgress::Style::kBar, [](run::TrainingProgress& progress) {
        progress.update({.step = 100});
        progress.clear();
      });
  EXPECT_TRUE(cleared.ends_with("\r\x1b[K")) << cleared;
}

TEST(TrainingProgress, TheStyleFollowsTheWordAndTheTerminal) {
  std::FILE* file = std::fopen("/dev/null", "w");
  EXPECT_EQ(run::TrainingProgress::choose("auto", file), run::TrainingProgress::Style::kLines);
  EXPECT_EQ(run::TrainingProgress::choose("bar", file), run::TrainingProgress::Style::kBar);
  EXPECT_EQ(run::TrainingProgress::choose("lines", file), run::TrainingProgress::Style::kLines);
  EXPECT_EQ(run::TrainingProgress::choose("none", file), run::TrainingProgress::Style::kNone);
  EXPECT_NE(message_of([&] { run::TrainingProgress::choose("loud", file); }).find("'loud'"),
            std::string::npos);
  std::fclose(file);
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal >= 0 && isatty(terminal) != 0) {
    std::FILE* tty = fdopen(terminal, "w");
    EXPECT_EQ(run::TrainingProgress::choose("auto", tty), run::TrainingProgress::Style::kBar);
    std::fclose(tty);
  }
}

}  // namespace
}  // namespace turbogr
