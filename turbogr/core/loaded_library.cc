#include "turbogr/core/loaded_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

namespace turbogr {

LoadedLibrary open_library(const char* what, const char* name, const char* variable) {
  LoadedLibrary library;
  const char* asked = std::getenv(variable);
  const char* path = asked != nullptr ? asked : name;
  library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library.handle != nullptr) return library;
  const char* why = dlerror();
  library.problem = std::string(what) + " was not found (" + (why != nullptr ? why : path) +
                    "); set LD_LIBRARY_PATH, or " + variable + " to the file";
  const char* folders = asked == nullptr ? std::getenv("TGR_CUDA_LIBRARIES") : nullptr;
  std::string_view left = folders != nullptr ? folders : "";
  while (!left.empty() && library.handle == nullptr) {
    const std::string_view folder = left.substr(0, left.find(':'));
    left.remove_prefix(folder.size() < left.size() ? folder.size() + 1 : left.size());
    const std::string file = std::string(folder) + "/" + name;
    library.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

}  // namespace turbogr
