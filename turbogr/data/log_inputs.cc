#include "turbogr/data/log_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"
#include "turbogr/data/kuairand_inputs.h"
#include "turbogr/data/partial_folder.h"

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

// What lies in a folder, in order of the names; hidden files are not looked at.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with('.')) entries.push_back(entry.path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The first of these that the folder holds, packed or not; empty when it holds none.
fs::path first_of(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (const char* packed : {"", ".gz", ".zst"}) {
      fs::path path = folder / (std::string(name) + packed);
      if (fs::is_regular_file(path)) return path;
    }
  }
  return {};
}

fs::path movielens_ratings(const fs::path& folder) {
  return first_of(folder, {"ratings.dat", "ratings.csv", "u.data"});
}
fs::path movielens_titles(const fs::path& folder) {
  return first_of(folder, {"movies.dat", "movies.csv", "u.item"});
}

fs::path movielens_users(const fs::path& folder) {
  return first_of(folder, {"users.dat", "u.user"});
}

// ".csv" of log.csv, log.csv.gz and log.csv.zst.
std::string ending_of(const fs::path& path) {
  const std::string last = path.extension().string();
  return last == ".gz" || last == ".zst" ? path.stem().extension().string() : last;
}

bool named_like_a_log(const fs::path& path) {
  static constexpr std::string_view kEndings[] = {".csv", ".tsv",  ".txt",  ".dat",
                                                  ".log", ".data", ".inter"};
  std::string name = path.filename().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return !name.starts_with("readme") && !name.starts_with("license") &&
         std::find(std::begin(kEndings), std::end(kEndings), ending_of(path)) != std::end(kEndings);
}

std::string joined(const std::vector<std::string>& names) {
  return printable(fmt::format("{}", fmt::join(names, ", ")), 400);
}

// A link that leads nowhere counts as one: of a log's name it is missed when it is opened.
bool is_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::is_regular_file(status) || !fs::exists(status);
}

// A folder of any log's files. One of RecBole's holds its .inter beside tables.
void add_folder(const fs::path& folder, LogInputs& inputs) {
  const std::vector<fs::path> entries = entries_of(folder);
  const auto is_inter = [](const fs::path& path) { return ending_of(path) == ".inter"; };
  TGR_CHECK(movielens_ratings(folder).empty() || movielens_titles(folder).empty(), "'",
            folder.string(), "' looks like MovieLens': give --format movielens, or name the files");
  TGR_CHECK(std::none_of(entries.begin(), entries.end(), is_kuairand_log), "'", folder.string(),
            "' looks like KuaiRand's: give --format kuairand, or name the files");
  const bool recbole = std::any_of(entries.begin(), entries.end(), is_inter);
  const std::size_t logs_before = inputs.logs.size();
  std::vector<std::string> others;
  for (const fs::path& path : entries) {
    const bool file = is_file(path);
    if (file && (recbole ? is_inter(path) : named_like_a_log(path))) {
      inputs.logs.push_back(path);
    } else if (file && recbole && ending_of(path) == ".item") {
      inputs.item_tables.push_back(path);
    } else if (file && recbole && ending_of(path) == ".user") {
      inputs.user_tables.push_back(path);
    } else if (!is_partial_folder(path)) {  // that of a store which is being made here
      others.push_back(path.filename().string());
    }
  }
  TGR_CHECK(
      inputs.logs.size() > logs_before, "'", folder.string(),
      "' holds no log: no file in it ends in .csv, .tsv, .txt, .dat, .log, .data or .inter ",
      "(or one of these and .gz or .zst); it has: ", others.empty() ? "nothing" : joined(others));
  if (others.empty()) return;
  inputs.remarks.push_back(
      fmt::format("'{}': {} read; left alone: {}", folder.string(),
                  inputs.logs.size() - logs_before == 1
                      ? "1 log"
                      : fmt::format("{} logs", inputs.logs.size() - logs_before),
                  joined(others)));
}

// Tables that came with a folder are of all events, and a shard has only some.
void leave_tables_to_the_merge(const PrepareOptions& options, LogInputs& inputs) {
  std::vector<std::string> left;
  const auto leave = [&](const fs::path& table) { left.push_back(table.string()); };
  for (std::vector<fs::path>* tables : {&inputs.user_tables, &inputs.item_tables}) {
    std::for_each(tables->begin(), tables->end(), leave);
    tables->clear();
  }
  if (options.format == LogFormat::kKuaiRand) {
    const auto tables =
        std::stable_partition(inputs.logs.begin(), inputs.logs.end(),
                              [](const fs::path& path) { return !is_kuairand_table(path); });
    std::for_each(tables, inputs.logs.end(), leave);
    inputs.logs.erase(tables, inputs.logs.end());
  }
  if (left.empty()) return;
  inputs.remarks.push_back(
      fmt::format("a shard takes no tables; give these to `turbogr data merge` with --user-table "
                  "and --item-table: {}",
                  joined(left)));
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
      files.push_back(movielens_ratings(input));
      TGR_CHECK(!files.back().empty(), "'", input.string(),
                "' holds none of ratings.dat, ratings.csv and u.data; name the rating file");
      const fs::path titles = movielens_titles(input);
      if (!titles.empty()) inputs.item_tables.push_back(titles);
      const fs::path users = movielens_users(input);
      if (!users.empty()) inputs.user_tables.push_back(users);
    } else {
      add_folder(input, inputs);
    }
  }
  TGR_CHECK(!files.empty() || !options.streams.empty(), "no input file is given");
  check_distinct(files);
  if (options.shards > 1) leave_tables_to_the_merge(options, inputs);
  if (options.streams.empty()) files = files_of_shard(std::move(files), options);
  return inputs;
}

std::vector<fs::path> files_of_shard(std::vector<fs::path> files, const PrepareOptions& options) {
  const std::int64_t count = std::ssize(files);
  TGR_CHECK(options.shards >= 1 && options.shard >= 0 && options.shard < options.shards, "shard ",
            options.shard + 1, " of ", options.shards, "; shards are counted from 1");
  TGR_CHECK(options.shards <= count, options.shards, " shards of ", count,
            count == 1 ? " log" : " logs", "; a shard is at least one file, so use at most ",
            count);
  const std::int64_t first = count * options.shard / options.shards;
  const std::int64_t last = count * (options.shard + 1) / options.shards;
  return {files.begin() + first, files.begin() + last};
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
