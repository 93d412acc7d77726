// Raw logs, or other files, under work in a folder. They carry their names once all are whole: a
// log cut short reads as a shorter one. Without publish() (an error, an interrupt) everything
// written goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/file.h"

namespace turbogr::data {

class PartialFiles {
 public:
  // Makes the folder. Throws when it is a store, or has a file of one of these names.
  PartialFiles(std::filesystem::path folder, std::span<const char* const> names);
  PartialFiles(const PartialFiles&) = delete;
  PartialFiles& operator=(const PartialFiles&) = delete;
  ~PartialFiles();

  std::filesystem::path path(std::size_t file) const { return partial(names_[file]); }
  void publish();  // once they are closed

 private:
  std::filesystem::path partial(const std::string& name) const {
    return folder_ / (name + ".partial");
  }

  std::filesystem::path folder_;
  std::vector<std::string> names_;
};

class PartialLogs {
 public:
  PartialLogs(std::filesystem::path folder, std::span<const char* const> names);

  void append(std::size_t file, std::string_view text) {
    files_[file].append(text.data(), text.size());
  }
  std::int64_t bytes(std::size_t file) const { return files_[file].bytes(); }
  void publish();

 private:
  PartialFiles names_;
  std::vector<FileWriter> files_;
};

}  // namespace turbogr::data
