// A folder of checkpoints: which there are, which is the newest or the best.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/core/output_file.h"

namespace turbogr::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";

constexpr std::size_t kLargestPointer = 4096;  // far more than a name has

}  // namespace

std::string pointed_name(const std::string& file) {
  std::string name = read_file(file, kLargestPointer);
  name.erase(name.find_last_not_of(" \n") + 1);
  return name;
}

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

}  // namespace turbogr::checkpoint
