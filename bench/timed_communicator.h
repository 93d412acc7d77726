// A communicator that also measures: time spent starting and waiting for its collectives, and bytes
// this rank sent to others.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/dist/communicator.h"

namespace turbogr::bench {

class TimedCommunicator : public dist::Communicator {
 public:
  explicit TimedCommunicator(dist::Communicator& inner) : inner_(inner) {}

  double seconds = 0;
  std::int64_t bytes = 0;

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  const std::vector<int>& nodes() const override { return inner_.nodes(); }

  // What counts is the time in which the caller does nothing else: starting and waiting.
  dist::Pending start_all_reduce(dist::Values values, dist::Reduce reduce) override {
    return timed([&] { return inner_.start_all_reduce(values, reduce); });
  }
  dist::Pending start_all_gather(const void* own, dist::ReceiveParts all) override {
    bytes += all.counts[static_cast<std::size_t>(rank())] * (size() - 1);
    return timed([&] { return inner_.start_all_gather(own, all); });
  }
  dist::Pending start_all_to_all(dist::SendParts send, dist::ReceiveParts receive) override {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) bytes += send.counts[static_cast<std::size_t>(peer)];
    }
    return timed([&] { return inner_.start_all_to_all(send, receive); });
  }
  dist::Pending start_broadcast(void* data, std::int64_t count, int root) override {
    return timed([&] { return inner_.start_broadcast(data, count, root); });
  }
  dist::Pending start_barrier() override {
    return timed([&] { return inner_.start_barrier(); });
  }
  std::unique_ptr<dist::Communicator> split(int colour, int key, std::string name) override {
    return inner_.split(colour, key, std::move(name));
  }
  void abort(const std::string& why) noexcept override { inner_.abort(why); }

 private:
  using Clock = std::chrono::steady_clock;
  class State : public dist::Pending::State {
   public:
    State(dist::Pending inner, double& seconds) : inner_(std::move(inner)), seconds_(seconds) {}
    bool done() override { return inner_.done(); }
    void wait() override {
      const auto begin = Clock::now();
      inner_.wait();
      seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    }
    void give_up() noexcept override {}  // the inner one is when it goes

   private:
    dist::Pending inner_;
    double& seconds_;
  };
  template <class Start>
  dist::Pending timed(Start&& start) {
    const auto begin = Clock::now();
    dist::Pending inner = start();
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    return dist::Pending(std::make_shared<State>(std::move(inner), seconds));
  }
  dist::Communicator& inner_;
};

}  // namespace turbogr::bench
