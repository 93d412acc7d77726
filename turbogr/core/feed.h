// Host data on its way to the device of a step. On a CPU it stays where it is; on a GPU it goes
// through pinned memory in the stream's order, two steps deep, so that the host fills one step's
// data while the device still reads the last one's.
//
//   feed.begin();                                        // waits for the step before the last
//   View<std::int32_t, 1> places = feed.take<std::int32_t>(count);   // host memory, to be filled
//   View<const std::int32_t, 1> sent = feed.send(ctx, places);       // where the device reads it
//   View<const std::int64_t, 1> items = feed.put(ctx, batch_items);  // both in one, from elsewhere
//   feed.end(ctx);                                       // after the last send of the step
//
// A copy of a few kilobytes takes as long as its start: with Sends::kTogether all that was sent is
// there after feed.flush(ctx), in one.
//
// Or many lists in one copy:
//
//   feed.begin(ctx, Feed::room<std::int64_t>(ids.size()) + ...);     // grows where it must
//   View<const std::int64_t, 1> sent = feed.place(ids);              // read there after:
//   feed.send_all(ctx);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr {

class Feed {
 public:
  Feed() = default;  // room comes with begin(ctx, bytes)
  enum class Sends : std::uint8_t { kAtOnce, kTogether };
  Feed(const Context& ctx, std::size_t bytes, Sends sends = Sends::kAtOnce);

  void begin();
  void begin(const Context& ctx, std::size_t bytes);
  void end(const Context& ctx);

  // What a list of so many takes.
  template <class T>
  static std::size_t room(std::size_t count) {
    return (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

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

  template <class T>
  View<const T, 1> place(const std::vector<T>& list) {
    const View<T, 1> taken = take<T>(std::ssize(list));
    if (!list.empty()) std::memcpy(taken.data, list.data(), list.size() * sizeof(T));
    return {reinterpret_cast<const T*>(device_address(taken.data)), {taken.shape[0]}};
  }
  void send_all(const Context& ctx);  // what was placed since begin; and ends

  // With Sends::kTogether: what was sent since begin, or since this was called last, in one copy.
  void flush(const Context& ctx);
  // Room on the device for what is made there. Flush first: what was sent before is not sent after.
  template <class T>
  View<T, 1> make(std::int64_t count) {
    T* to = reinterpret_cast<T*>(device_address(take<T>(count).data));
    flushed_ = used_;
    return {to, {count}};
  }

  PlannedBytes bytes() const;

 private:
  static constexpr std::size_t kAlignment = 256;
  struct Slot {
    Tensor host, device;  // device: GPU only
    std::unique_ptr<Event> sent;
  };
  static Slot make_slot(const Context& ctx, std::size_t bytes);
  std::byte* take_bytes(std::size_t bytes);
  const std::byte* send_bytes(const Context& ctx, const void* host, std::size_t bytes);
  std::byte* device_address(const void* host);

  std::array<Slot, 2> slots_;
  std::size_t current_ = 1;
  std::size_t used_ = 0, flushed_ = 0;
  Sends sends_ = Sends::kAtOnce;
};

}  // namespace turbogr
