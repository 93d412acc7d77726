// How far a long job is: stage, share, rate and time left on one line that rewrites itself, on a
// terminal only.
#pragma once

#include <cstdint>
#include <string>

namespace turbogr::data {

class Progress {
 public:
  explicit Progress(bool on_terminal) : on_(on_terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `unit` is "B" for bytes, shown in MB and GB, or a word such as "rows". Total -1: unknown.
  void begin(std::string stage, std::int64_t total, std::string unit);
  void update(std::int64_t done);  // cheap: draws ten times a second at most
  void clear();                    // takes the line away

  // "reading  [#####     ]  52 %  812 MB/s  0:12 left"; what update draws.
  static std::string line(const std::string& stage, std::int64_t done, std::int64_t total,
                          const std::string& unit, double seconds);

 private:
  bool on_;
  bool drawn_ = false;
  std::string stage_;
  std::string unit_;
  std::int64_t total_ = -1;
  std::int64_t begin_ns_ = 0;
  std::int64_t drawn_ns_ = 0;
};

}  // namespace turbogr::data
