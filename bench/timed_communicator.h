// A communicator that also measures: collectives started, time spent starting and waiting for them,
// and bytes this rank sent to others. Those split from it measure, too, each under its own name.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "turbogr/dist/communicator.h"

namespace turbogr::bench {

struct CommunicationTotals {
  std::int64_t collectives = 0;
  double seconds = 0;
  std::int64_t bytes = 0;
};

class TimedCommunicator : public dist::Communicator {
 public:
  explicit TimedCommunicator(dist::Communicator& inner)
      : TimedCommunicator(inner, nullptr, std::make_shared<Measured>()) {}

  // Of all communicators split from this one, and itself, whose names begin so; since the last
  // reset.
  CommunicationTotals totals(std::string_view name_begins = "") const {
    CommunicationTotals sum;
    for (const auto& [name, each] : *measured_) {
      if (!std::string_view(name).starts_with(name_begins)) continue;
      sum.collectives += each->collectives;
      sum.seconds += each->seconds;
      sum.bytes += each->bytes;
    }
    return sum;
  }
  void reset() {
    for (auto& [name, each] : *measured_) *each = {};
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  const std::vector<int>& nodes() const override { return inner_.nodes(); }

  // What counts is the time in which the caller does nothing else: starting and waiting.
  dist::Pending start_all_reduce(dist::Values values, dist::Reduce reduce) override {
    return timed([&] { return inner_.start_all_reduce(values, reduce); });
  }
  dist::Pending start_all_gather(const void* own, dist::ReceiveParts all) override {
    own_->bytes += all.counts[static_cast<std::size_t>(rank())] * (size() - 1);
    return timed([&] { return inner_.start_all_gather(own, all); });
  }
  dist::Pending start_all_to_all(dist::SendParts send, dist::ReceiveParts receive) override {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) own_->bytes += send.counts[static_cast<std::size_t>(peer)];
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
    std::unique_ptr<dist::Communicator> part = inner_.split(colour, key, std::move(name));
    dist::Communicator& inner = *part;
    return std::unique_ptr<dist::Communicator>(
        new TimedCommunicator(inner, std::move(part), measured_));
  }
  void abort(const std::string& why) noexcept override { inner_.abort(why); }

 private:
  using Clock = std::chrono::steady_clock;
  using Measured = std::vector<std::pair<std::string, std::shared_ptr<CommunicationTotals>>>;

  TimedCommunicator(dist::Communicator& inner, std::unique_ptr<dist::Communicator> owned,
                    std::shared_ptr<Measured> measured)
      : owned_(std::move(owned)),
        inner_(inner),
        own_(std::make_shared<CommunicationTotals>()),
        measured_(std::move(measured)) {
    measured_->emplace_back(inner.name(), own_);
  }

  class State : public dist::Pending::State {
   public:
    State(dist::Pending inner, std::shared_ptr<CommunicationTotals> totals)
        : inner_(std::move(inner)), totals_(std::move(totals)) {}
    bool done() override { return inner_.done(); }
    void wait() override {
      const auto begin = Clock::now();
      inner_.wait();
      totals_->seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    }
    void give_up() noexcept override {}  // the inner one is when it goes

   private:
    dist::Pending inner_;
    std::shared_ptr<CommunicationTotals> totals_;
  };
  template <class Start>
  dist::Pending timed(Start&& start) {
    const auto begin = Clock::now();
    dist::Pending inner = start();
    ++own_->collectives;
    own_->seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    return dist::Pending(std::make_shared<State>(std::move(inner), own_));
  }

  std::unique_ptr<dist::Communicator> owned_;
  dist::Communicator& inner_;
  std::shared_ptr<CommunicationTotals> own_;
  std::shared_ptr<Measured> measured_;
};

}  // namespace turbogr::bench
