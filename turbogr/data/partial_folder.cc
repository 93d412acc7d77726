#include "turbogr/data/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".partial-";

fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// A lock on the folder itself dies with its process, so one that can be had has no owner.
void remove_leftovers(const fs::path& target) {
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const std::string prefix = target.filename().string() + kMark;
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
      leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& leftover : leftovers) {
    const FileHandle folder(::open(leftover.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0 || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    fs::remove_all(leftover, error);
  }
}

}  // namespace

bool is_partial_folder(const fs::path& path) {
  return without_trailing_slash(path).filename().string().find(kMark) != std::string::npos;
}

PartialFolder::PartialFolder(const fs::path& target, bool replace)
    : target_(without_trailing_slash(target)), replace_(replace) {
  TGR_CHECK(!target_.empty(), "the output folder has no name");
  TGR_CHECK(!is_partial_folder(target_), "'", target_.string(), "': names with '", kMark,
            "' are kept for unfinished work; choose another");
  TGR_CHECK(replace_ || !fs::exists(fs::symlink_status(target_)), "'", target_.string(),
            "' exists; remove it, choose another name or give --overwrite");
  // Replacing removes what was there: only what a writer like this one made, or nothing.
  TGR_CHECK(!fs::exists(fs::symlink_status(target_)) || fs::exists(target_ / "manifest.json") ||
                (fs::is_directory(target_) && fs::is_empty(target_)),
            "'", target_.string(), "' exists and is not a store; choose another name");
  const fs::path parent = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw_file_error("create", parent, error.value());
  remove_leftovers(target_);
  const fs::path folder = target_.string() + kMark + std::to_string(::getpid());
  if (!fs::create_directory(folder, error)) {
    if (error) throw_file_error("create", folder, error.value());
    detail::throw_error("'", folder.string(), "' is being written already");
  }
  folder_ = folder;
  lock_ = FileHandle(folder_, O_RDONLY | O_DIRECTORY);
  ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

PartialFolder::PartialFolder(PartialFolder&& other) noexcept
    : target_(std::move(other.target_)),
      folder_(std::exchange(other.folder_, fs::path())),
      lock_(std::move(other.lock_)),
      replace_(other.replace_) {}

PartialFolder::~PartialFolder() {
  if (folder_.empty()) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void PartialFolder::publish() {
  sync_folder(folder_);
  if (replace_ && fs::exists(fs::symlink_status(target_))) {
    // The two names change places at once; what was the target then goes as a leftover does.
    TGR_CHECK(
        ::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0,
        "cannot put the new '", target_.string(),
        "' in place of the old: ", std::system_category().message(errno));
    sync_folder(target_.parent_path());
    fs::remove_all(folder_);
  } else {
    if (::rename(folder_.c_str(), target_.c_str()) != 0) throw_file_error("make", target_, errno);
    sync_folder(target_.parent_path());
  }
  folder_.clear();
  lock_.close();
}

}  // namespace turbogr::data
