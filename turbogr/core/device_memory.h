// Memory of either device, and copies between them in the order of a context's stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "turbogr/core/context.h"
#include "turbogr/core/device.h"
#include "turbogr/core/tensor.h"

namespace turbogr {

// Either side may be host or device memory. Returns at once on a GPU: a host side must be pinned
// and must stay until the stream has passed.
void copy_bytes(const Context& ctx, void* to, const void* from, std::size_t bytes);
void zero_bytes(const Context& ctx, void* data, std::size_t bytes);

// Waits until all that was queued on the context's stream is done.
void synchronize(const Context& ctx);

// Whole tensors of one size and format, done on return: for checkpoints and tests, not for steps.
void copy_tensor(const Context& ctx, Tensor& to, const Tensor& from);
Tensor to_host(const Context& ctx, const Tensor& tensor);

struct DeviceMemory {
  std::size_t free = 0;
  std::size_t total = 0;
};
DeviceMemory device_memory();  // of the GPU; zeros without one
std::string device_name();     // "NVIDIA H200"; empty without one
std::string device_id();       // the same in every process that uses this GPU; empty without one
int num_gpus();                // that this process sees

// The calling thread's GPU from now on, 0 before: contexts it makes run there. Other threads that
// launch a context's work bind themselves to its GPU first.
void use_gpu(int gpu);
void bind_thread(const Context& ctx);

// A point in a context's stream that the host, or another stream, can wait for. On a CPU everything
// before it is done already.
class Event {
 public:
  explicit Event(const Context& ctx, bool timed = false);
  explicit Event(bool timed);  // of the GPU
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  void record(const Context& ctx) { record(ctx.stream()); }
  void record(void* stream);
  void wait() const;                          // the host does
  void wait_on(const Context& ctx) const;     // the context's stream does
  double ms_since(const Event& start) const;  // both timed, recorded and waited for

 private:
  void* event_ = nullptr;
};

}  // namespace turbogr
