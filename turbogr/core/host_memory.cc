#include "turbogr/core/host_memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace turbogr {
namespace {

thread_local int plans_alive = 0;

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();
// Asking takes a few files' reading: after so much was taken, not each time; sooner where a
// sixteenth of what is left is less.
constexpr std::size_t kBetweenLooks = std::size_t{64} << 20;
// Of what is there, or an eighth where there is little.
constexpr std::size_t kLeftForOthers = std::size_t{256} << 20;

// The number behind `name` in a file of lines "name number ...".
std::optional<std::size_t> named_number(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::size_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return std::nullopt;
}

// The number a file consists of; nothing for "max".
std::optional<std::size_t> whole_number(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// What a limit leaves, pages of files not counted as used: they are dropped before a group runs
// out, those in frequent use last. `of_all` begins the names of figures that count groups below,
// too.
std::size_t room(const std::string& folder, const char* limit_name, const char* used_name,
                 const std::string& of_all) {
  const auto limit = whole_number(folder + "/" + limit_name);
  const auto used = whole_number(folder + "/" + used_name);
  if (!limit || !used) return kUnknown;
  std::size_t files = 0;
  for (const char* name : {"inactive_file", "active_file"}) {
    files += named_number(folder + "/memory.stat", of_all + name).value_or(0);
  }
  const std::size_t kept = *used > files ? *used - files : 0;
  return *limit > kept ? *limit - kept : 0;
}

// What `ulimit -v` leaves. Past it an allocation fails inside whatever library makes it, and not
// all of them look.
std::size_t address_room(const std::string& proc) {
  constexpr std::string_view kName = "Max address space";
  const auto used_kib = named_number(proc + "/self/status", "VmSize:");
  std::ifstream limits(proc + "/self/limits");
  for (std::string line; used_kib && std::getline(limits, line);) {
    if (!line.starts_with(kName)) continue;
    std::istringstream soft(line.substr(kName.size()));
    std::size_t limit = 0;
    if (!(soft >> limit)) return kUnknown;  // "unlimited"
    const std::size_t used = *used_kib << 10;
    return limit > used ? limit - used : 0;
  }
  return kUnknown;
}

}  // namespace

std::size_t detail::available_host_memory(const std::string& proc, const std::string& groups) {
  std::size_t available = address_room(proc);
  if (const auto kib = named_number(proc + "/meminfo", "MemAvailable:")) {
    available = std::min(available, *kib << 10);
  }
  std::ifstream own(proc + "/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    // "0::/path" of the one hierarchy there is now, "4:memory:/path" of the older many.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    // A container may see its own group as the root. Limits hold from any group upwards.
    for (bool root = false; !root;) {
      root = path.empty() || path == "/";
      const std::string below = root ? "" : path;
      if (controllers.empty()) {
        available = std::min(available, room(groups + below, "memory.max", "memory.current", ""));
      } else if (controllers == "memory") {
        available = std::min(available, room(groups + "/memory" + below, "memory.limit_in_bytes",
                                             "memory.usage_in_bytes", "total_"));
      }
      const std::size_t last = path.rfind('/');
      path.erase(last == std::string::npos ? 0 : last);
    }
  }
  return available;
}

std::size_t available_host_memory() {
  return detail::available_host_memory("/proc", "/sys/fs/cgroup");
}

bool detail::fits(std::size_t bytes, std::size_t available) {
  return available == kUnknown || bytes <= available - std::min(kLeftForOthers, available / 8);
}

bool detail::host_has(std::size_t bytes) {
  static std::atomic<std::size_t> taken_since_look{0};
  static std::atomic<std::size_t> next_look{0};
  if (bytes < kBetweenLooks && taken_since_look.fetch_add(bytes) + bytes < next_look) return true;
  taken_since_look = 0;
  const std::size_t available = turbogr::available_host_memory();
  next_look = std::min(kBetweenLooks, available / 16);
  return fits(bytes, available);
}

PlanOnly::PlanOnly() { ++plans_alive; }
PlanOnly::~PlanOnly() { --plans_alive; }

bool plans_only() { return plans_alive > 0; }

}  // namespace turbogr
