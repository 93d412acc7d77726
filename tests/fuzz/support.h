// What the fuzz targets share. A target feeds bytes to a reader: an Error is a fine answer to bad
// bytes; anything else (another exception, a sanitizer's report, a broken promise) is a bug.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/core/check.h"

namespace turbogr::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A promise of the reader under test; libFuzzer keeps the input that breaks it.
inline void expect(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

template <class Function>
void errors_are_fine(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    expect(*error.what() != 0, "an error says something");
  }
}

// The parts of an input between zero bytes, `count` of them; missing ones are empty, the last has
// the rest.
inline std::vector<std::string> parts_of(std::string_view input, std::size_t count) {
  std::vector<std::string> parts(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t stop = i + 1 < count ? input.find('\0') : std::string_view::npos;
    parts[i] = input.substr(0, stop);
    input = stop == std::string_view::npos ? std::string_view() : input.substr(stop + 1);
  }
  return parts;
}

// A folder in memory, emptied before each input and removed at the end of the process.
class Folder {
 public:
  Folder() {
    std::string name = "/dev/shm/turbogr-fuzz-XXXXXX";
    expect(::mkdtemp(name.data()) != nullptr, "there is room in /dev/shm");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::filesystem::remove_all(entry.path());
    }
  }
  void write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << content;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace turbogr::fuzz
