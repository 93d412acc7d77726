#include "turbogr/data/log_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {

namespace fs = std::filesystem;

namespace {

// A file named twice, or reached by two paths, would silently double its events.
void check_distinct(const std::vector<fs::path>& files) {
  std::map<std::pair<dev_t, ino_t>, const fs::path*> seen;
  for (const fs::path& file : files) {
    struct stat status = {};
    const bool standard_input = file == "-";
    if (!standard_input && (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode))) {
      continue;
    }
    const auto [first, fresh] = seen.emplace(std::pair(status.st_dev, status.st_ino), &file);
    TGR_CHECK(fresh, "'", first->second->string(), "' and '", file.string(),
              "' are the same input; its rows would count twice: name it once");
  }
}

}  // namespace

std::vector<fs::path> log_inputs(const PrepareOptions& options) {
  std::vector<fs::path> files;
  for (const fs::path& input : options.inputs) {
    if (options.format != LogFormat::kKuaiRand || !fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(input)) {
      const std::string name = entry.path().filename().string();
      const bool wanted = name.starts_with("log_standard") || name.starts_with("log_random") ||
                          name.starts_with("user_features") ||
                          name.starts_with("video_features_basic");
      if (wanted && name.find(".csv") != std::string::npos) found.push_back(entry.path());
    }
    TGR_CHECK(!found.empty(), "'", input.string(),
              "' holds none of KuaiRand's files (log_standard_*.csv, ...)");
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  TGR_CHECK(!files.empty(), "no input file is given");
  check_distinct(files);
  return files;
}

std::int64_t total_bytes(const std::vector<fs::path>& files) {
  std::int64_t total = 0;
  for (const fs::path& file : files) {
    std::error_code error;
    const auto bytes = fs::file_size(file, error);
    if (error) return -1;
    total += static_cast<std::int64_t>(bytes);
  }
  return total;
}

}  // namespace turbogr::data
