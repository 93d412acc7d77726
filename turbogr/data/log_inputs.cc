#include "turbogr/data/log_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <initializer_list>
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

namespace {

std::vector<fs::path> kuairand_files(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = name.starts_with("log_standard") || name.starts_with("log_random") ||
                        name.starts_with("user_features") ||
                        name.starts_with("video_features_basic");
    if (wanted && name.find(".csv") != std::string::npos) found.push_back(entry.path());
  }
  TGR_CHECK(!found.empty(), "'", folder.string(),
            "' holds none of KuaiRand's files (log_standard_*.csv, ...)");
  std::sort(found.begin(), found.end());
  return found;
}

// The first of these that the folder holds, packed or not; empty when it holds none.
fs::path first_of(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (const char* packed : {"", ".gz", ".zst"}) {
      const fs::path path = folder / (std::string(name) + packed);
      if (fs::is_regular_file(path)) return path;
    }
  }
  return {};
}

}  // namespace

LogInputs log_inputs(const PrepareOptions& options) {
  LogInputs inputs;
  std::vector<fs::path>& files = inputs.logs;
  for (const fs::path& input : options.inputs) {
    if (!fs::is_directory(input)) {
      files.push_back(input);
    } else if (options.format == LogFormat::kKuaiRand) {
      for (const fs::path& file : kuairand_files(input)) files.push_back(file);
    } else if (options.format == LogFormat::kMovieLens) {
      files.push_back(first_of(input, {"ratings.dat", "ratings.csv", "u.data"}));
      TGR_CHECK(!files.back().empty(), "'", input.string(),
                "' holds none of ratings.dat, ratings.csv and u.data; name the rating file");
      const fs::path titles = first_of(input, {"movies.dat", "movies.csv", "u.item"});
      if (!titles.empty()) inputs.item_tables.push_back(titles);
    } else {
      detail::throw_error("'", input.string(),
                          "' is a folder; name the files in it, or give --format kuairand or "
                          "movielens if it is one of theirs");
    }
  }
  TGR_CHECK(!files.empty(), "no input file is given");
  check_distinct(files);
  return inputs;
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
