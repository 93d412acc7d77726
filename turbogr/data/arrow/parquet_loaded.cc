// The program starts where no Arrow is: libturbogr_parquet.so, from beside it, is opened when
// Parquet is asked for.
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/parquet_calls.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParquetFile = "libturbogr_parquet.so";
constexpr const char* kHowToGetIt =
    "`pip install pyarrow` and `make parquet` in the source tree build it; in Python, "
    "turbogr.prepare "
    "reads Parquet without it";

// Beside the program, above it (tests), or where it is installed; empty: nowhere.
fs::path find_library() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  for (const char* folder : {".", "..", "../lib/turbogr"}) {
    fs::path place = program.parent_path() / folder / kParquetFile;
    if (!none && fs::exists(place, none)) return place;
  }
  return {};
}

// "Arrow 26.0.1 of '/env/pyarrow'", which the build noted beside the library, and what that folder
// has now.
std::string other_version(const fs::path& library) {
  std::ifstream note(library.string() + ".built-for");
  std::string version;
  std::string folder;
  if (!std::getline(note, version) || !std::getline(note, folder)) return "";
  std::string now;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libarrow.so.")) now = name;
  }
  return fmt::format("; it was built for Arrow {} in '{}', which now has {}", version, folder,
                     now.empty() ? "no Arrow" : now);
}

struct OpenedParquet {
  const TurbogrParquetCalls* calls = nullptr;
  std::string problem;

  OpenedParquet() {
    const fs::path library = find_library();
    if (library.empty()) {
      problem = fmt::format("{} is not beside the program", kParquetFile);
      return;
    }
    void* file = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) {
      const char* why = dlerror();
      problem = fmt::format("{}{}", why != nullptr ? why : kParquetFile, other_version(library));
      return;
    }
    void* found = dlsym(file, "turbogr_parquet_calls");
    if (found == nullptr) {
      problem = fmt::format("'{}' is not turbogr's", library.string());
      return;
    }
    calls = reinterpret_cast<decltype(&turbogr_parquet_calls)>(found)();
    const std::string_view built = calls->version == kParquetCallsVersion ? calls->built_for : "";
    if (built.empty()) {
      problem = fmt::format("'{}' belongs to another version of turbogr", library.string());
    } else if (const std::string_view loaded = calls->runs_with();
               loaded.substr(0, loaded.rfind('.')) != built.substr(0, built.rfind('.'))) {
      problem = fmt::format("'{}' was built for Arrow {} and found Arrow {}", library.string(),
                            built, loaded);
    }
    if (!problem.empty()) calls = nullptr;
  }
};

}  // namespace

const TurbogrParquetCalls& parquet_calls() {
  static const OpenedParquet opened;
  TGR_CHECK(opened.calls != nullptr, "Parquet cannot be used: ", opened.problem, "; ", kHowToGetIt);
  return *opened.calls;
}

}  // namespace turbogr::data
