#include "turbogr/data/partial_logs.h"

#include <system_error>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {

PartialLogs::PartialLogs(std::filesystem::path folder, std::span<const char* const> names)
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
  for (const std::string& name : names_) {
    files_.emplace_back(partial(name), std::size_t{1} << 20);
  }
}

PartialLogs::~PartialLogs() {
  std::error_code ignored;
  for (const std::string& name : names_) std::filesystem::remove(partial(name), ignored);
}

void PartialLogs::publish() {
  for (FileWriter& file : files_) file.close(false);
  for (const std::string& name : names_) {
    std::filesystem::rename(partial(name), folder_ / name);
  }
}

}  // namespace turbogr::data
