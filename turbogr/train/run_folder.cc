#include "turbogr/train/run_folder.h"

#include <filesystem>
#include <fstream>

#include "turbogr/core/check.h"

namespace turbogr::train {

namespace fs = std::filesystem;

RunFolder open_run_folder(const Config& config) {
  TGR_CHECK(!config.run.dir.empty(),
            "run.dir is not set; name a folder for this run, e.g. --run.dir=runs/first");
  const RunFolder folder{config.run.dir};
  std::error_code error;
  const bool occupied = fs::exists(folder.path, error) && !fs::is_empty(folder.path, error);
  TGR_CHECK(config.run.resume || !occupied, "run.dir '", folder.path,
            "' is not empty; go on with --run.resume=true, or name another folder");
  fs::create_directories(folder.path, error);
  TGR_CHECK(!error, "cannot make the run folder '", folder.path, "': ", error.message());
  return folder;
}

void write_run_config(const RunFolder& folder, const Config& config) {
  std::ofstream out(folder.config());
  out << config_text(config);
  out.close();
  TGR_CHECK(!out.fail(), "cannot write '", folder.config(), "'; is the disk full?");
}

}  // namespace turbogr::train
