// The collectives over messages between hosts' memories: all-to-all and its relatives in one
// exchange; reductions in an exchange of parts, a sum in rank order, and an exchange of sums.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/dist/engine.h"
#include "turbogr/dist/message_rounds.h"

namespace turbogr::dist {

class HostCommunicator : public Communicator {
 public:
  // The world of the engine's transport.
  explicit HostCommunicator(std::shared_ptr<Engine> engine);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<int>& nodes() const override { return nodes_; }

  Pending start_all_reduce(Values values, Reduce reduce) override;
  Pending start_all_gather(const void* own, ReceiveParts all) override;
  Pending start_all_to_all(SendParts send, ReceiveParts receive) override;
  Pending start_broadcast(void* data, std::int64_t bytes, int root) override;
  Pending start_barrier() override;

  std::unique_ptr<Communicator> split(int colour, int key, std::string name) override;
  void add_seconds_waited(std::span<double> by_rank) const override {
    engine_->add_seconds_waited(by_rank);
  }
  void abort(const std::string& why) noexcept override { engine_->abort(why); }

 private:
  HostCommunicator(std::shared_ptr<Engine> engine, std::vector<int> members, int group,
                   std::string name);
  Pending start(const char* collective, std::vector<Phase> phases);

  std::shared_ptr<Engine> engine_;
  std::vector<int> members_;  // ranks of the world
  std::vector<int> nodes_;
  int group_ = 0;
  int rank_ = 0;
  std::string name_;
  std::int64_t started_ = 0;
};

}  // namespace turbogr::dist
