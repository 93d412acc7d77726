// What a GPU did when: spans between two points of a stream, put on the host's clock for the trace,
// their lengths added up where somebody counts. On a CPU, or when nobody asks, nothing happens.
//
//   const DeviceSpans::Span span = spans.begin(ctx, "forward and backward", kDeviceLane);
//   ...                         // queue work
//   spans.end(ctx, span);
//   spans.collect();            // once the device has passed: writes them to the trace
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"

namespace turbogr {

class DeviceSpans {
 public:
  explicit DeviceSpans(const Context& ctx,
                       bool counting = false);  // counting: without a trace, too

  using Span = std::size_t;
  // `name` is a literal. `stream` may be another context of the same GPU. `seconds` grows by the
  // span's length when it is collected.
  Span begin(const Context& stream, const char* name, int lane, double* seconds = nullptr);
  void end(const Context& stream, Span span);
  // Waits for the spans that have ended.
  void collect();

 private:
  struct Marks {
    const char* name = nullptr;
    int lane = 0;
    double* seconds = nullptr;
    bool ended = false;
    std::unique_ptr<Event> begin, end;
  };
  void record(Marks& marks);

  Trace* trace_;
  std::unique_ptr<Event> start_;
  std::int64_t start_ns_ = 0;
  std::vector<Marks> ring_;
  std::size_t next_ = 0;
};

}  // namespace turbogr
