#include "turbogr/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>

#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"

namespace turbogr::run {

namespace fs = std::filesystem;

void check_run_folder(const Config& config) {
  TGR_CHECK(!config.run.dir.empty(),
            "run.dir is not set; name a folder for this run, e.g. --run.dir=runs/first");
  const std::string& path = config.run.dir;
  std::error_code error;
  TGR_CHECK(!fs::exists(path, error) || fs::is_directory(path, error), "run.dir '", path,
            "' is not a folder; name another one");
  const bool occupied = fs::exists(path, error) && !fs::is_empty(path, error);
  TGR_CHECK(config.run.resume || !occupied, "run.dir '", path,
            "' is not empty; go on with --run.resume=true, or name another folder");
}

RunFolder open_run_folder(const Config& config) {
  check_run_folder(config);
  RunFolder folder{config.run.dir, {}};
  std::error_code error;
  fs::create_directories(folder.path, error);
  TGR_CHECK(!error, "cannot make the run folder '", folder.path, "': ", error.message());
  folder.lock = FileHandle(folder.path, O_RDONLY | O_DIRECTORY);
  // Some network file systems know no locks; there two runs in one folder go unnoticed.
  TGR_CHECK(::flock(folder.lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, "run.dir '",
            folder.path,
            "' is in use by another run; wait for it, stop it, or name another folder");
  folder.check_in_place();
  return folder;
}

void RunFolder::check_in_place() const {
  TGR_CHECK(is_at(lock.get(), path), "run.dir '", path,
            "' is no longer the folder this run began in: that was renamed, deleted or replaced "
            "while it ran. Nothing was written to what is there now; to go on from the last "
            "checkpoint, put the folder back and start with --run.resume=true");
}

void write_run_config(const RunFolder& folder, const Config& config) {
  replace_file(folder.config(), config_text(config));
}

}  // namespace turbogr::run
