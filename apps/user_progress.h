// How far a command is with its users: a line that rewrites itself on a terminal, elsewhere one in
// the log every ten seconds. Short jobs say nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "turbogr/core/progress.h"

namespace turbogr::apps {

class UserProgress {
 public:
  enum class Speaks { kYes, kNo };  // of several ranks only the first does

  UserProgress(std::string_view doing, std::int64_t users, Speaks speaks = Speaks::kYes);
  void update(std::int64_t done);
  void clear() { line_.clear(); }  // before something else is printed
  double seconds() const;          // since it was made

 private:
  std::string doing_;
  std::int64_t users_;
  bool in_log_;
  Progress line_;
  std::int64_t begin_ns_;
  std::int64_t said_ns_;
};

}  // namespace turbogr::apps
