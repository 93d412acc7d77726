// The folder a run writes into, and what else it leaves there.
#pragma once

#include <cstdint>
#include <string>

#include "turbogr/core/file.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

struct RunFolder {
  std::string path;
  FileHandle lock;  // held while the run lives, so that no other one writes here

  std::string checkpoints() const { return path + "/checkpoints"; }
  std::string metrics() const { return path + "/metrics.jsonl"; }
  std::string trace() const { return path + "/trace.json"; }
  std::string mllog() const { return path + "/mllog.txt"; }
  std::string lengths() const { return path + "/lengths.json"; }
  std::string config() const { return path + "/config.toml"; }
  std::string tensorboard() const { return path + "/tensorboard"; }

  // Throws when the path no longer leads to the folder that is locked. Before every write: what is
  // there now is another run's.
  void check_in_place() const;
};

// Throws what open_run_folder would about run.dir, and makes nothing: for before the memory of a
// large model is taken.
void check_run_folder(const Config& config);

// Makes the folder. A new run wants it absent or empty; a resumed one wants a checkpoint in it.
// Throws when another process is at work in it.
RunFolder open_run_folder(const Config& config);

// The resolved config; once the run is sure to start, so that one refused changes nothing.
void write_run_config(const RunFolder& folder, const Config& config);

}  // namespace turbogr::run
