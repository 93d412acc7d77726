// Where a device's time goes: operators say which section of a step they belong to; the time from
// one mark (in a GPU's stream; on a CPU, by the clock) to the next is added to the section that was
// open. Costs nothing unless a timer hangs on the context, whose operators one thread then calls.
//
//   SectionTimer timer;
//   ctx.set_sections(&timer);
//   ... a step ...
//   timer.finish(ctx);  timer.ms(Section::kLoss);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace turbogr {

class Context;
class Event;

enum class Section : std::uint8_t {
  kIdle,  // none: between operators
  kAttentionForward,
  kAttentionBackward,
  kGemm,
  kElementwise,
  kEmbedding,
  kLoss,
  kOptimiser,
};
inline constexpr std::size_t kSections = 8;
std::string_view name_of(Section section);

class SectionTimer {
 public:
  SectionTimer();
  ~SectionTimer();

  void enter(void* stream, Section section);
  void leave(void* stream);
  // Waits for the device, adds up what was marked since the last time and forgets the marks.
  void finish(const Context& ctx);
  double ms(Section section) const { return totals_[static_cast<std::size_t>(section)]; }

 private:
  void mark(void* stream, Section section);  // from here on the time is this section's

  std::vector<std::unique_ptr<Event>> events_;  // made once, used again
  std::vector<Section> marks_;
  std::vector<Section> open_;
  std::array<double, kSections> totals_ = {};
};

// Opens a section until its end. Sections nest: the inner one's time is not the outer one's.
class SectionScope {
 public:
  SectionScope(SectionTimer* timer, void* stream, Section section)
      : timer_(timer), stream_(stream) {
    if (timer_ != nullptr) timer_->enter(stream_, section);
  }
  ~SectionScope() {
    if (timer_ != nullptr) timer_->leave(stream_);
  }
  SectionScope(const SectionScope&) = delete;
  SectionScope& operator=(const SectionScope&) = delete;

 private:
  SectionTimer* timer_;
  void* stream_;
};

}  // namespace turbogr
