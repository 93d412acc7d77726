#include "turbogr/core/device_memory.h"

#include <cstdlib>
#include <cstring>

#include "turbogr/core/large_pages.h"

#if TGR_WITH_CUDA
#include <cuda_runtime.h>

#include "turbogr/core/cuda_call.h"
#endif

namespace turbogr {

#if TGR_WITH_CUDA

namespace {

cudaStream_t stream_of(const Context& ctx) { return static_cast<cudaStream_t>(ctx.stream()); }

}  // namespace

namespace detail {

void throw_cuda_error(int error, const char* what) {
  const auto code = static_cast<cudaError_t>(error);
  cudaGetLastError();  // told: or the next call that asks would be blamed
  throw_error("CUDA: ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ") in ", what);
}

}  // namespace detail

void copy_bytes(const Context& ctx, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (ctx.device() == Device::kCpu) {
    std::memcpy(to, from, bytes);
    return;
  }
  TGR_CUDA_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(ctx)));
}

void zero_bytes(const Context& ctx, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  if (ctx.device() == Device::kCpu) {
    std::memset(data, 0, bytes);
    return;
  }
  TGR_CUDA_CALL(cudaMemsetAsync(data, 0, bytes, stream_of(ctx)));
}

void synchronize(const Context& ctx) {
  if (ctx.device() == Device::kCuda) TGR_CUDA_CALL(cudaStreamSynchronize(stream_of(ctx)));
}

DeviceMemory device_memory() {
  DeviceMemory memory;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return memory;
  TGR_CUDA_CALL(cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}

std::string device_name() {
  if (device_memory().total == 0) return "";
  int device = 0;
  TGR_CUDA_CALL(cudaGetDevice(&device));
  cudaDeviceProp properties;
  TGR_CUDA_CALL(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

std::string device_id() {
  if (device_memory().total == 0) return "";
  int device = 0;
  TGR_CUDA_CALL(cudaGetDevice(&device));
  cudaDeviceProp properties;
  TGR_CUDA_CALL(cudaGetDeviceProperties(&properties, device));
  return {properties.uuid.bytes, sizeof properties.uuid.bytes};
}

int num_gpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

void use_gpu(int gpu) { TGR_CUDA_CALL(cudaSetDevice(gpu)); }

void bind_thread(const Context& ctx) {
  if (ctx.device() != Device::kCuda) return;
  int gpu = 0;
  TGR_CUDA_CALL(cudaStreamGetDevice(stream_of(ctx), &gpu));
  use_gpu(gpu);
}

Event::Event(const Context& ctx, bool timed) {
  if (ctx.device() == Device::kCuda) *this = Event(timed);
}

Event::Event(bool timed) {
  cudaEvent_t event;
  TGR_CUDA_CALL(
      cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  event_ = event;
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

void Event::record(void* stream) {
  if (event_ == nullptr) return;
  TGR_CUDA_CALL(
      cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)));
}

void Event::wait() const {
  if (event_ != nullptr) TGR_CUDA_CALL(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
}

void Event::wait_on(const Context& ctx) const {
  if (event_ == nullptr) return;
  TGR_CUDA_CALL(cudaStreamWaitEvent(stream_of(ctx), static_cast<cudaEvent_t>(event_), 0));
}

double Event::ms_since(const Event& start) const {
  if (event_ == nullptr) return 0;
  float ms = 0;
  TGR_CUDA_CALL(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(start.event_),
                                     static_cast<cudaEvent_t>(event_)));
  return ms;
}

namespace detail {

std::byte* allocate_bytes(Device device, std::size_t bytes) {
  void* data = nullptr;
  if (device == Device::kCpu) return allocate_host_bytes(bytes);
  const cudaError_t error =
      device == Device::kCuda ? cudaMalloc(&data, bytes) : cudaMallocHost(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the caller names the tensor
    return nullptr;
  }
  TGR_CUDA_CALL(error);
  return static_cast<std::byte*>(data);
}

void free_bytes(Device device, std::byte* data) noexcept {
  if (device == Device::kCpu) {
    std::free(data);
  } else if (device == Device::kCuda) {
    cudaFree(data);
  } else {
    cudaFreeHost(data);
  }
}

void clear_bytes(Device device, std::byte* data, std::size_t bytes) {
  if (device != Device::kCuda) {
    std::memset(data, 0, bytes);
    return;
  }
  TGR_CUDA_CALL(cudaMemset(data, 0, bytes));
  // The memset runs on another stream than any context's.
  TGR_CUDA_CALL(cudaDeviceSynchronize());
}

void* make_stream() {
  cudaStream_t stream;
  TGR_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void destroy_stream(void* stream) noexcept { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

}  // namespace detail

#else

void copy_bytes(const Context&, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void zero_bytes(const Context&, void* data, std::size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

void synchronize(const Context&) {}
DeviceMemory device_memory() { return {}; }
std::string device_name() { return ""; }
std::string device_id() { return ""; }
int num_gpus() { return 0; }
void use_gpu(int) {}
void bind_thread(const Context&) {}
Event::Event(const Context&, bool) {}
Event::Event(bool) {}
Event::~Event() {}  // the CUDA build has something to do here
void Event::record(void*) {}
void Event::wait() const {}
void Event::wait_on(const Context&) const {}
double Event::ms_since(const Event&) const { return 0; }

namespace detail {

std::byte* allocate_bytes(Device, std::size_t bytes) { return allocate_host_bytes(bytes); }
void free_bytes(Device, std::byte* data) noexcept { std::free(data); }
void clear_bytes(Device, std::byte* data, std::size_t bytes) { std::memset(data, 0, bytes); }
void* make_stream() { return nullptr; }
void destroy_stream(void*) noexcept {}

}  // namespace detail

#endif

void copy_tensor(const Context& ctx, Tensor& to, const Tensor& from) {
  TGR_CHECK(to.dtype() == from.dtype() && to.shape() == from.shape(), "a ", name_of(from.dtype()),
            " tensor of shape ", shape_text(from.shape()), " cannot be copied to a ",
            name_of(to.dtype()), " tensor of shape ", shape_text(to.shape()));
  copy_bytes(ctx, to.data(), from.data(), from.bytes());
  synchronize(ctx);
}

Tensor to_host(const Context& ctx, const Tensor& tensor) {
  Tensor host(tensor.dtype(), tensor.shape());
  copy_tensor(ctx, host, tensor);
  return host;
}

}  // namespace turbogr
