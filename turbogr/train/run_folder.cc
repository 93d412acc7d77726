#include "turbogr/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "turbogr/core/check.h"

namespace turbogr::train {

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
  return folder;
}

void write_run_config(const RunFolder& folder, const Config& config) {
  std::ofstream out(folder.config());
  out << config_text(config);
  out.close();
  TGR_CHECK(!out.fail(), "cannot write '", folder.config(), "'; is the disk full?");
}

}  // namespace turbogr::train
