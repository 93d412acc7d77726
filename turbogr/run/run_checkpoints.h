// A run's checkpoints: what it goes on or starts from, what it saves as it goes, and the best of
// them at its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/run_folder.h"
#include "turbogr/run/run_position.h"
#include "turbogr/run/task.h"

namespace turbogr::run {

class RunCheckpoints {
 public:
  // All outlive it. All calls are collective.
  RunCheckpoints(const Context& ctx, dist::Communicator& world, const Config& config,
                 const data::Store& store, const RunFolder& folder, Task& task);

  // The step gone on from; nothing when there is none and the run begins again. `logged`: what the
  // run had written by then.
  std::optional<std::int64_t> resume(bool start_over, RunPosition& position,
                                     std::optional<LoggedBytes>& logged);
  void start_from();

  void open_writer();
  // Not the same step twice, unless there is a score now; an evaluation's, by which the best is
  // kept. `logged` is rank 0's, `command` how the run was started.
  void save(const RunPosition& position, const std::optional<LoggedBytes>& logged,
            const std::string& command, std::optional<double> score);
  void wait();  // until all is on the disk

  // Its weights, unless they are those there already; its folder's name then, else empty.
  std::string load_best();

 private:
  bool leads() const { return world_.rank() == 0; }
  void read_tables(const checkpoint::Checkpoint& saved, checkpoint::TableParts wanted);

  const Context& ctx_;
  dist::Communicator& world_;
  const Config& config_;
  const data::Store& store_;
  const RunFolder& folder_;
  Task& task_;
  std::unique_ptr<dist::Communicator> writing_ranks_;
  // Of rank 0, and of those whose rows it writes, too.
  std::unique_ptr<checkpoint::CheckpointWriter> writer_;
  std::int64_t last_saved_ = -1;
};

}  // namespace turbogr::run
