// Trace events: what ran when, on which lane. Written as JSON that ui.perfetto.dev and
// chrome://tracing open.
//
//   TraceScope scope(ctx.trace(), "attention forward", /*lane=*/0);
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace turbogr {

// Room for a fixed number of events, so recording allocates nothing; later ones are counted, not
// kept.
class Trace {
 public:
  explicit Trace(std::size_t capacity = 1 << 16, int rank = 0);

  // Names a lane (a row in the viewer). Before recording starts.
  void name_lane(int lane, std::string name);
  // `name` must outlive the trace: a literal.
  void record(const char* name, int lane, std::int64_t begin_ns, std::int64_t end_ns);

  std::size_t size() const;     // events kept
  std::size_t dropped() const;  // events past the capacity
  // Writes beside, then renames: a reader never sees half a file. Throws when the disk refuses.
  void write(const std::string& path) const;

  // For one file from many ranks: this rank's events, `shift_ns` added to their times; and the file
  // of all ranks' events.
  std::string events(std::int64_t shift_ns) const;
  static void write_all(const std::string& path, const std::vector<std::string>& events);

  static std::int64_t now_ns();  // steady clock

 private:
  struct Event {
    const char* name;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    int lane;
  };
  struct Lane {
    int lane;
    std::string name;
  };

  int rank_;
  std::vector<Event> events_;
  std::vector<Lane> lanes_;
  std::atomic<std::size_t> next_{0};
};

// Records from construction to destruction; a null trace costs one branch.
class TraceScope {
 public:
  TraceScope(Trace* trace, const char* name, int lane = 0)
      : trace_(trace),
        name_(name),
        lane_(lane),
        begin_ns_(trace != nullptr ? Trace::now_ns() : 0) {}
  ~TraceScope() {
    if (trace_ != nullptr) trace_->record(name_, lane_, begin_ns_, Trace::now_ns());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  const char* name_;
  int lane_;
  std::int64_t begin_ns_;
};

}  // namespace turbogr
