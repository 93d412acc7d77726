// A folder of checkpoints: which there are, which is the newest or the best, and opening one while
// a run saves there.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"

namespace turbogr::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";

constexpr std::size_t kLargestPointer = 4096;  // far more than a name has

// A writer at work adds, replaces and removes checkpoints while they are opened. What fails and has
// changed meanwhile is looked at again, so many times at most.
constexpr int kAttempts = 20;

// Another number for another folder of the same name.
std::uint64_t identity_of(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

using Listing = std::vector<std::pair<std::string, std::uint64_t>>;
Listing listing_of(const std::string& folder) {
  Listing listing;
  for (std::string& path : list_checkpoints(folder)) {
    const std::uint64_t identity = identity_of(path);
    listing.emplace_back(std::move(path), identity);
  }
  return listing;
}

// What `latest` or `best` says.
std::string pointed_name(const std::string& file) {
  std::string name = read_file(file, kLargestPointer);
  name.erase(name.find_last_not_of(" \n") + 1);
  return name;
}

// Nothing when it is damaged; the first fault of several is the one worth telling.
std::optional<Checkpoint> open_whole(const std::string& path, std::string& fault) {
  try {
    Checkpoint checkpoint(path);
    checkpoint.verify();
    return checkpoint;
  } catch (const Error& error) {
    if (fault.empty()) fault = error.what();
    return std::nullopt;
  }
}

}  // namespace

std::string lost_latest(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/latest", error)) return "";
  std::string name;
  try {
    name = pointed_name(folder + "/latest");
  } catch (const Error& fault) {
    return fault.what();
  }
  if (checkpoint_step(name) && std::filesystem::exists(folder + "/" + name, error)) return "";
  return fmt::format("'{}/latest' names '{}', and there is no such checkpoint", folder,
                     escaped(name.substr(0, 100)));
}

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:09}", kPrefix, step); }

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.size() < 9 || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::stoll(std::string(digits));
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    if (const auto step = checkpoint_step(entry.path().filename().string())) {
      found.emplace_back(*step, entry.path().string());
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::string latest;
  try {
    latest = pointed_name(folder + "/latest");
  } catch (const Error&) {  // killed before the first one was announced: the newest step will do
  }
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  const auto announced = std::find(paths.begin(), paths.end(), folder + "/" + latest);
  if (announced != paths.end()) std::rotate(paths.begin(), announced, announced + 1);
  return paths;
}

std::string best_checkpoint(const std::string& folder) {
  std::string name;
  try {
    name = pointed_name(folder + "/best");
  } catch (const Error&) {  // none is kept, or it is no file that could name one
    return "";
  }
  const std::string path = folder + "/" + name;
  return checkpoint_step(name) && std::filesystem::exists(path + "/manifest.json") ? path : "";
}

bool never_saved(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/" + kNoneYet, error);
}

Checkpoint open_newest_checkpoint(const std::string& folder, bool fall_back) {
  for (int attempt = 1;; ++attempt) {
    const Listing listing = listing_of(folder);
    std::string fault = lost_latest(folder);
    std::optional<Checkpoint> whole;
    for (const auto& [path, identity] : listing) {
      if ((whole = open_whole(path, fault))) break;
    }
    if (whole && fault.empty()) return *std::move(whole);
    if (attempt < kAttempts && listing_of(folder) != listing) continue;
    TGR_CHECK(!listing.empty(), "there is no checkpoint in '", folder,
              "'; check the path: only a run that has saved one can be opened or resumed");
    TGR_CHECK(whole, fault, ". None of the ", listing.size(), " checkpoints in '", folder,
              "' is whole");
    TGR_CHECK(fall_back, fault, ". The newest good one is '", whole->folder(),
              "': set checkpoint.fall_back = true to go on from it");
    log::warn("{}. Going on from the newest good one, '{}'", fault, whole->folder());
    return *std::move(whole);
  }
}

Checkpoint open_named_checkpoint(const std::string& path) {
  std::string fault;
  for (int attempt = 1;; ++attempt) {
    const std::uint64_t identity = identity_of(path);
    fault.clear();
    if (std::optional<Checkpoint> whole = open_whole(path, fault)) return *std::move(whole);
    if (attempt == kAttempts || identity_of(path) == identity) break;
  }
  const std::filesystem::path named = std::filesystem::weakly_canonical(path);
  for (const std::string& other : list_checkpoints(named.parent_path().string())) {
    std::string ignored;
    TGR_CHECK(other == named || !open_whole(other, ignored), fault,
              ". The newest good one beside it is '", other, "'");
  }
  throw Error(fault);
}

Checkpoint open_pointed_checkpoint(const std::string& file) {
  for (int attempt = 1;; ++attempt) {
    const std::string name = pointed_name(file);
    const std::filesystem::path named = std::filesystem::path(file).parent_path() / name;
    try {
      TGR_CHECK(checkpoint_step(name), "'", file,
                "' names no checkpoint; give a run folder, a checkpoint, or its `latest` or "
                "`best`");
      return open_named_checkpoint(named.string());
    } catch (const Error&) {
      if (attempt == kAttempts || pointed_name(file) == name) throw;
    }
  }
}

}  // namespace turbogr::checkpoint
