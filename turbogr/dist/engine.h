// Moves a rank's operations on: an operation is a few phases, each an exchange of messages and then
// a piece of local work. Whoever waits moves them; while nobody waits a thread does, so that
// communication goes on behind computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/dist/transport.h"

namespace turbogr::dist {

struct Phase {
  struct Send {
    int peer;  // rank of the world
    const std::byte* data;
    std::size_t bytes;
  };
  struct Receive {
    int peer;
    std::byte* data;
    std::size_t bytes;
  };
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::function<void()> after;  // once all of them are done; may be empty
};

struct Operation {
  std::string what;   // "all_reduce 12 of world", for messages
  int first_tag = 0;  // phase p uses first_tag + p
  std::vector<Phase> phases;
};

class Engine {
 public:
  static constexpr int kMaxPhases = 16;

  Engine(std::unique_ptr<Transport> transport, const WaitOptions& options);
  ~Engine();  // every operation must have been waited for, or the world has failed
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Transport& transport() const;
  Pending start(Operation operation);
  // To each rank of the world, how long somebody here has waited for messages to and from it.
  void add_seconds_waited(std::span<double> by_rank) const;
  void abort(const std::string& why) noexcept;

  // A number for a new group, larger than any its members have had; 0 is the world.
  int next_group() const { return next_group_; }
  void set_next_group(int group) { next_group_ = group; }

 private:
  struct Shared;
  class State;
  int next_group_ = 1;
  std::shared_ptr<Shared> shared_;
};

}  // namespace turbogr::dist
