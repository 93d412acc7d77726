// A checkpoint and its store, open for calls from Python: one at a time, and none in a process that
// was forked, where the threads are gone.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "python/module/host.h"
#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/data/store.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/run/config.h"
#include "turbogr/run/trained_model.h"

namespace turbogr::python {

class Opened {
 public:
  // `store`: empty, or where the one it was trained on is now.
  Opened(const std::string& path, const std::string& store)
      : checkpoint_(run::open_checkpoint(path)),
        config_(run::parse_config(checkpoint_.config(), checkpoint_.folder() + "/config.toml")),
        store_(run::open_store(config_, store)),
        alone_(dist::make_self()) {}

  std::string folder() const { return checkpoint_.folder(); }
  std::int64_t step() const { return checkpoint_.step(); }
  std::string store_folder() const { return store_.folder().string(); }
  std::string config() const { return run::config_text(config_); }

 protected:
  template <class Work>
  auto in_turn(Work&& work) {
    return interruptible([&] {
      TGR_CHECK(::getpid() == process_, "this model was loaded before its process was forked, and ",
                "its threads are not in the new one; load it again there");
      const std::lock_guard turn(mutex_);
      return work();
    });
  }

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  checkpoint::Checkpoint checkpoint_;
  run::Config config_;
  data::Store store_;
  std::unique_ptr<dist::Communicator> alone_;
};

}  // namespace turbogr::python
