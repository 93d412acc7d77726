// What the GPU has taken from its supply, by the driver's management library (NVML), which is
// opened at run time: programs need none to start.
#pragma once

#include <memory>

namespace turbogr::bench {

class EnergyMeter {
 public:
  EnergyMeter();
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  // Joules since the driver was loaded; the driver counts in steps of some tens of milliseconds.
  // Below 0: there is no GPU, no such library, or it does not count.
  double joules() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace turbogr::bench
