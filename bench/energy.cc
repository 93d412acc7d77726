#include "bench/energy.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "turbogr/core/device_memory.h"

namespace turbogr::bench {
namespace {

// "GPU-01234567-89ab-cdef-0123-456789abcdef" of its 16 bytes.
std::string uuid_text(const std::string& bytes) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(bytes[i]));
  }
  return text;
}

}  // namespace

// As nvml.h declares them; 0 is success.
struct EnergyMeter::Library {
  void* handle = nullptr;
  int (*shutdown)() = nullptr;
  int (*total_energy)(void*, unsigned long long*) = nullptr;
  void* device = nullptr;

  ~Library() {
    if (device != nullptr) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  template <class Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
    return function != nullptr;
  }
  void open() {
    handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return;
    int (*start)() = nullptr;
    int (*device_by_uuid)(const char*, void**) = nullptr;
    if (!find(start, "nvmlInit_v2") || !find(shutdown, "nvmlShutdown") ||
        !find(device_by_uuid, "nvmlDeviceGetHandleByUUID") ||
        !find(total_energy, "nvmlDeviceGetTotalEnergyConsumption") || start() != 0) {
      return;
    }
    if (device_by_uuid(uuid_text(device_id()).c_str(), &device) != 0) {
      device = nullptr;
      shutdown();
    }
  }
};

EnergyMeter::EnergyMeter() : library_(std::make_unique<Library>()) {
  if (device_memory().total > 0) library_->open();
}
EnergyMeter::~EnergyMeter() = default;

double EnergyMeter::joules() const {
  unsigned long long millijoules = 0;
  if (library_->device == nullptr || library_->total_energy(library_->device, &millijoules) != 0) {
    return -1;
  }
  return static_cast<double>(millijoules) * 1e-3;
}

}  // namespace turbogr::bench
