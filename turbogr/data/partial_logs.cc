#include "turbogr/data/partial_logs.h"

#include <system_error>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {

PartialFiles::PartialFiles(std::filesystem::path folder, std::span<const char* const> names)
    : folder_(std::move(folder)), names_(names.begin(), names.end()) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  TGR_CHECK(std::filesystem::is_directory(folder_), "cannot make the folder '", folder_.string(),
            "': ", error ? error.message() : "it is a file", "; choose another name");
  TGR_CHECK(!std::filesystem::exists(folder_ / "manifest.json"), "'", folder_.string(),
            "' is a store; give the logs a folder of their own");
  for (const std::string& name : names_) {
    TGR_CHECK(!std::filesystem::exists(folder_ / name), "'", (folder_ / name).string(),
              "' exists; remove it or choose another folder");
  }
}

PartialFiles::~PartialFiles() {
  std::error_code ignored;
  for (const std::string& name : names_) std::filesystem::remove(partial(name), ignored);
}

void PartialFiles::publish() {
  for (const std::string& name : names_) {
    std::filesystem::rename(partial(name), folder_ / name);
  }
}

PartialLogs::PartialLogs(std::filesystem::path folder, std::span<const char* const> names)
    : names_(std::move(folder), names) {
  for (std::size_t file = 0; file < names.size(); ++file) {
    files_.emplace_back(names_.path(file), std::size_t{1} << 20);
  }
}

void PartialLogs::publish() {
  for (FileWriter& file : files_) file.close(false);
  names_.publish();
}

}  // namespace turbogr::data
