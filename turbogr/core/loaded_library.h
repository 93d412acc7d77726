// Libraries that are opened when first used, so that programs and wheels start, and are built,
// without them: NVIDIA's, which come with CUDA, with a system's packages, or as wheels of their
// own.
#pragma once

#include <string>

namespace turbogr {

struct LoadedLibrary {
  void* handle = nullptr;
  std::string problem;  // what to do where there is none
};

// The file that the environment variable `variable` names; else what the system's loader finds by
// `name` (or has in the process already); else `name` in one of the folders of TGR_CUDA_LIBRARIES,
// which the Python package fills in with those of NVIDIA's wheels. `what` is for people.
LoadedLibrary open_library(const char* what, const char* name, const char* variable);

}  // namespace turbogr
