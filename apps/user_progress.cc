#include "apps/user_progress.h"

#include <unistd.h>

#include <algorithm>

#include "turbogr/core/log.h"
#include "turbogr/core/progress.h"
#include "turbogr/core/trace.h"

namespace turbogr::apps {
namespace {

constexpr std::int64_t kBetweenLines = 10'000'000'000;  // ns

}  // namespace

UserProgress::UserProgress(std::string_view doing, std::int64_t users, Speaks speaks)
    : doing_(doing),
      users_(users),
      in_log_(speaks == Speaks::kYes && ::isatty(STDERR_FILENO) == 0),
      line_(speaks == Speaks::kYes && !in_log_),
      begin_ns_(Trace::now_ns()),
      said_ns_(begin_ns_) {
  line_.begin(doing_, users, "users");
}

void UserProgress::update(std::int64_t done) {
  line_.update(done);
  const std::int64_t now = Trace::now_ns();
  if (!in_log_ || now - said_ns_ < kBetweenLines) return;
  said_ns_ = now;
  const double rate = static_cast<double>(done) / seconds();
  log::info("{}: {} of {} users, {} a second", doing_, grouped_text(done), grouped_text(users_),
            grouped_text(static_cast<std::int64_t>(rate)));
}

double UserProgress::seconds() const {
  return static_cast<double>(std::max<std::int64_t>(Trace::now_ns() - begin_ns_, 1)) * 1e-9;
}

}  // namespace turbogr::apps
