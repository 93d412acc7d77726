// Host data on its way to the device of a step. On a CPU it stays where it is; on a GPU it goes
// through pinned memory in the stream's order, two steps deep, so that the host fills one step's
// data while the device still reads the last one's.
//
//   feed.begin();                                        // waits for the step before the last
//   View<std::int32_t, 1> places = feed.take<std::int32_t>(count);   // host memory, to be filled
//   View<const std::int32_t, 1> sent = feed.send(ctx, places);       // where the device reads it
//   View<const std::int64_t, 1> items = feed.put(ctx, batch_items);  // both in one, from elsewhere
//   feed.end(ctx);                                       // after the last send of the step
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/train/planned_bytes.h"

namespace turbogr::train {

class StepFeed {
 public:
  StepFeed(const Context& ctx, std::size_t bytes);

  void begin();
  void end(const Context& ctx);

  template <class T>
  View<T, 1> take(std::int64_t count) {
    return {reinterpret_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T))), {count}};
  }
  // Of what take gave; its beginning is enough.
  template <class T>
  View<const T, 1> send(const Context& ctx, View<T, 1> taken) {
    const auto bytes = static_cast<std::size_t>(taken.shape[0]) * sizeof(T);
    return {reinterpret_cast<const T*>(send_bytes(ctx, taken.data, bytes)), {taken.shape[0]}};
  }
  template <class T>
  View<const T, 1> put(const Context& ctx, View<const T, 1> host) {
    if (ctx.device() == Device::kCpu || host.shape[0] == 0) return host;
    const View<T, 1> room = take<T>(host.shape[0]);
    std::memcpy(room.data, host.data, static_cast<std::size_t>(host.shape[0]) * sizeof(T));
    return send(ctx, room);
  }

  PlannedBytes bytes() const;

 private:
  struct Slot {
    Tensor host, device;  // device: GPU only
    std::unique_ptr<Event> sent;
  };
  std::byte* take_bytes(std::size_t bytes);
  const std::byte* send_bytes(const Context& ctx, const void* host, std::size_t bytes);

  std::array<Slot, 2> slots_;
  std::size_t current_ = 1;
  std::size_t used_ = 0;
};

}  // namespace turbogr::train
