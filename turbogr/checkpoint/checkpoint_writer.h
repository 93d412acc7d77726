// Writes checkpoints while training goes on: save copies the tensors and returns; threads do the
// rest. A GPU's tensors are copied beside themselves where half of its free memory has room, which
// takes milliseconds; all others to the host. What is too large for half of the host's free memory
// is written piece by piece while save waits. A fault of the disk reaches the next save, wait or
// close.
//
//   CheckpointWriter writer("runs/demo/checkpoints", {.keep_last = 2});
//   writer.save({.step = 300, .shards = {{"model", tensors}}, .state = state, .config = text});
//   ...
//   writer.wait();
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::checkpoint {

struct CheckpointWriterOptions {
  std::int64_t keep_last = 2;  // at least 1
  std::int64_t keep_best = 0;  // by score; `best` then names the best one
  bool background = true;      // false: save returns when all is on the disk
  // Asked before anything in the folder is touched; throws when it is not the writer's any more.
  std::function<void()> check_folder;
  // Of the tensors on a GPU, if there are any.
  const Context* device = nullptr;
  // The ranks that write a checkpoint together, each its parts of the tables; rank 0 all else. For
  // the writers alone: their threads talk over it. Null: one rank.
  dist::Communicator* ranks = nullptr;
};

class CheckpointWriter {
 public:
  // Makes the folder when it is absent and removes what a killed writer left half-done. One writer
  // a folder, or one a rank.
  CheckpointWriter(std::string folder, CheckpointWriterOptions options = {});
  ~CheckpointWriter();  // waits; a fault nobody asked for goes to the log

  // Waits for the save before, throws its fault, then copies and hands over. The tensors may change
  // as soon as it returns. A checkpoint of the same step is replaced. Every rank saves the same
  // step; a fault of one is everybody's.
  void save(const CheckpointContents& contents);
  // Until nothing is being written; throws the fault of the last save.
  void wait();

 private:
  struct Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace turbogr::checkpoint
