#include "turbogr/core/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

Trace::Trace(std::size_t capacity, int rank) : rank_(rank), events_(capacity) {}

void Trace::name_lane(int lane, std::string name) { lanes_.push_back({lane, std::move(name)}); }

void Trace::record(const char* name, int lane, std::int64_t begin_ns, std::int64_t end_ns) {
  const std::size_t slot = next_.fetch_add(1, std::memory_order_relaxed);
  if (slot < events_.size()) events_[slot] = {name, begin_ns, end_ns, lane};
}

std::size_t Trace::size() const { return std::min(next_.load(), events_.size()); }

std::size_t Trace::dropped() const { return next_.load() - size(); }

std::string Trace::events(std::int64_t shift_ns) const {
  std::string out = fmt::format(
      R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})", rank_);
  for (const Lane& lane : lanes_) {
    out += fmt::format(
        ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}"
        "}",
        rank_, lane.lane, json_quoted(lane.name));
  }
  const std::size_t count = size();
  for (std::size_t i = 0; i < count; ++i) {
    const Event& event = events_[i];
    out += fmt::format(
        ",\n{{\"ph\":\"X\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}}",
        json_quoted(event.name), rank_, event.lane,
        static_cast<double>(event.begin_ns + shift_ns) * 1e-3,
        static_cast<double>(event.end_ns - event.begin_ns) * 1e-3);
  }
  return out;
}

void Trace::write(const std::string& path) const {
  const std::size_t count = size();
  std::int64_t origin = count == 0 ? 0 : events_[0].begin_ns;
  for (std::size_t i = 0; i < count; ++i) origin = std::min(origin, events_[i].begin_ns);
  write_all(path, {events(-origin)});
}

void Trace::write_all(const std::string& path, const std::vector<std::string>& events) {
  OutputTarget target(path);
  OutputFile out(target.writing());
  out.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (std::size_t rank = 0; rank < events.size(); ++rank) {
    if (rank > 0) out.write(",\n");
    out.write(events[rank]);
  }
  out.write("\n]}\n");
  out.finish();
  target.put_in_place();
}

std::int64_t Trace::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace turbogr
