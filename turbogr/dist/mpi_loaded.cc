// The program starts where no MPI is: libturbogr_mpi.so, from beside it, is opened when ranks are
// asked for.
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/dist/mpi_calls.h"

namespace turbogr::dist {
namespace {

constexpr const char* kFile = "libturbogr_mpi.so";

struct Opened {
  const MpiCalls* calls = nullptr;
  std::string problem;

  Opened() {
    // Beside the program, above it (tests), where it is installed, or where the loader looks.
    std::vector<std::string> places;
    std::error_code none;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
    for (const char* folder : {".", "..", "../lib/turbogr"}) {
      const std::filesystem::path place = program.parent_path() / folder / kFile;
      if (!none && std::filesystem::exists(place, none)) places.push_back(place.string());
    }
    places.emplace_back(kFile);
    // Parts of MPI that it opens itself look for the rest among global names.
    void* file = dlopen(places.front().c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (file == nullptr) {
      const char* why = dlerror();
      problem = why != nullptr ? why : places.front();
      return;
    }
    void* found = dlsym(file, "turbogr_mpi_calls");
    if (found == nullptr) {
      problem = places.front() + " is not turbogr's";
      return;
    }
    calls = reinterpret_cast<decltype(&turbogr_mpi_calls)>(found)();
    if (calls->version != kMpiCallsVersion) {
      problem = places.front() + " belongs to another version";
      calls = nullptr;
    }
  }
};

}  // namespace

const MpiCalls& mpi_calls() {
  static const Opened opened;
  TGR_CHECK(opened.calls != nullptr, "MPI cannot be used: ", opened.problem, "; install OpenMPI (",
            kFile, " is built beside the program), or start the program without mpirun");
  return *opened.calls;
}

}  // namespace turbogr::dist
