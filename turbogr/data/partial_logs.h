// Raw logs under work in a folder. They carry their names once all are whole: a log cut short reads
// as a shorter one. Without publish() (an error, an interrupt) everything written goes.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/file.h"

namespace turbogr::data {

class PartialLogs {
 public:
  // Makes the folder. Throws when it is a store, or has a file of one of these names.
  PartialLogs(std::filesystem::path folder, std::span<const char* const> names);
  PartialLogs(const PartialLogs&) = delete;
  PartialLogs& operator=(const PartialLogs&) = delete;
  ~PartialLogs();

  void append(std::size_t file, std::string_view text) {
    files_[file].append(text.data(), text.size());
  }
  void publish();

 private:
  std::filesystem::path partial(const std::string& name) const {
    return folder_ / (name + ".partial");
  }

  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::vector<FileWriter> files_;
};

}  // namespace turbogr::data
