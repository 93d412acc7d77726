#include "turbogr/core/section_timer.h"

#include "turbogr/core/device_memory.h"
#include "turbogr/core/trace.h"

namespace turbogr {

std::string_view name_of(Section section) {
  constexpr std::array<std::string_view, kSections> kNames = {
      "idle", "attention_forward", "attention_backward", "gemm", "elementwise", "embedding",
      "loss", "optimiser"};
  return kNames[static_cast<std::size_t>(section)];
}

SectionTimer::SectionTimer() = default;
SectionTimer::~SectionTimer() = default;

namespace {

double clock_ms() { return static_cast<double>(Trace::now_ns()) * 1e-6; }

}  // namespace

void SectionTimer::mark(void* stream, Section section) {
  if (stream == nullptr) {  // a CPU: ends are added, beginnings subtracted
    const double now = clock_ms();
    if (!marks_.empty()) totals_[static_cast<std::size_t>(marks_.back())] += now;
    totals_[static_cast<std::size_t>(section)] -= now;
    marks_.assign(1, section);
    return;
  }
  if (marks_.size() == events_.size()) events_.push_back(std::make_unique<Event>(true));
  events_[marks_.size()]->record(stream);
  marks_.push_back(section);
}

void SectionTimer::enter(void* stream, Section section) {
  open_.push_back(section);
  mark(stream, section);
}

void SectionTimer::leave(void* stream) {
  open_.pop_back();
  mark(stream, open_.empty() ? Section::kIdle : open_.back());
}

void SectionTimer::finish(const Context& ctx) {
  if (ctx.device() == Device::kCpu) {
    if (!marks_.empty()) totals_[static_cast<std::size_t>(marks_.back())] += clock_ms();
    marks_.clear();
    return;
  }
  synchronize(ctx);
  for (std::size_t i = 0; i + 1 < marks_.size(); ++i) {
    totals_[static_cast<std::size_t>(marks_[i])] += events_[i + 1]->ms_since(*events_[i]);
  }
  marks_.clear();
}

}  // namespace turbogr
