// How far a long job is: stage, share, figures and time left on one line of a terminal that
// rewrites itself. And texts for people: times, counts, output at once.
//
//   Progress progress(isatty(STDERR_FILENO) != 0);
//   progress.begin("reading", bytes, "B");
//   progress.update(done);
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace turbogr {

class Progress {
 public:
  explicit Progress(bool on, std::FILE* out = stderr) : on_(on), out_(out) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `unit` is "B" for bytes, shown in MB and GB, or a word such as "rows". Total 0 or less: not
  // known. `first`: how much was done before this began, as in a run that is resumed.
  void begin(std::string stage, std::int64_t total, std::string unit, std::int64_t first = 0);
  // Cheap: draws ten times a second at most, and at the end. `figures` stand where the rate would.
  void update(std::int64_t done, std::string_view figures = {});
  void clear();  // takes the line away, so that something else can be printed
  void leave();  // lets the line stand and goes on below it
  // Time between the two counts neither into the rate nor into the time left.
  void pause();
  void resume();

  double seconds_left(std::int64_t done) const;  // below 0: not known

  // "reading    [#####     ]  52 %  812 MB/s  0:12 left", in fewer than `columns`; what update
  // draws.
  struct Line {
    std::string_view stage;
    std::string_view figures;
    double share = -1;         // below 0: not known, so no bar
    double seconds_left = -1;  // below 0: not known
  };
  static std::string text_of(const Line& line, int columns);
  static std::string rate_text(double per_second, std::string_view unit);

 private:
  double seconds() const;  // since it began, without pauses

  bool on_;
  std::FILE* out_;
  bool drawn_ = false;
  std::string stage_;
  std::string unit_;
  std::int64_t total_ = -1;
  std::int64_t first_ = 0;
  std::int64_t begin_ns_ = 0;
  std::int64_t paused_ns_ = 0;
  std::int64_t drawn_ns_ = 0;
};

// Writes and flushes. That nobody reads any more is no exception here, so that a run can save
// before it ends: SIGPIPE tells it (data/interrupt.h), and main reports what never got out.
void print_text(std::FILE* out, std::string_view text);

template <class... Args>
void print_result(fmt::format_string<Args...> format, Args&&... args) {
  print_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}

std::string duration_text(double seconds);      // 0:07, 12:30, 3:05:09, 2d 04:00
std::string grouped_text(std::int64_t number);  // 98,304

}  // namespace turbogr
