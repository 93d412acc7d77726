// Ranks as threads of one process: messages are copies from one rank's memory to another's.
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/engine.h"
#include "turbogr/dist/host_communicator.h"
#include "turbogr/dist/transport.h"

namespace turbogr::dist {
namespace {

// One half of a message waiting for the other.
struct Half {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::atomic<bool> done = false;
};

class Mailbox {
 public:
  explicit Mailbox(std::vector<int> nodes) : nodes_(std::move(nodes)) {}

  struct Place {
    int from, to, tag;
    bool operator<(const Place& other) const {
      return std::tie(from, to, tag) < std::tie(other.from, other.to, other.tag);
    }
  };

  void post(const Place& place, bool sending, const std::shared_ptr<Half>& half) {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[place];
    if (queue.halves.empty() || queue.sending == sending) {
      queue.sending = sending;
      queue.halves.push_back(half);
      return;
    }
    const std::shared_ptr<Half> other = queue.halves.front();
    queue.halves.pop_front();
    if (queue.halves.empty()) queues_.erase(place);
    Half& source = sending ? *half : *other;
    Half& target = sending ? *other : *half;
    if (source.bytes != target.bytes) {
      fail_locked("rank " + std::to_string(place.from) + " sent " + std::to_string(source.bytes) +
                  " bytes where rank " + std::to_string(place.to) + " wants " +
                  std::to_string(target.bytes) + ": the ranks are not at the same collective");
      return;
    }
    if (source.bytes > 0) std::memcpy(target.data, source.data, source.bytes);
    source.done = true;
    target.done = true;
  }

  // A half that nobody has taken is no longer there for anybody.
  void withdraw(const Place& place, const std::shared_ptr<Half>& half) {
    const std::lock_guard lock(mutex_);
    const auto found = queues_.find(place);
    if (found == queues_.end()) return;
    std::erase(found->second.halves, half);
    if (found->second.halves.empty()) queues_.erase(found);
  }

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    fail_locked(why);
  }
  std::string failure() const {
    if (!failed_) return "";
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  const std::vector<int>& nodes() const { return nodes_; }

 private:
  struct Queue {
    bool sending = false;
    std::deque<std::shared_ptr<Half>> halves;
  };

  void fail_locked(const std::string& why) {
    if (!failed_) failure_ = why;
    failed_ = true;
  }

  const std::vector<int> nodes_;
  mutable std::mutex mutex_;
  std::map<Place, Queue> queues_;
  std::atomic<bool> failed_ = false;
  std::string failure_;
};

class ThreadsTransport : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Mailbox> mailbox, int rank)
      : mailbox_(std::move(mailbox)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mailbox_->nodes().size()); }
  const std::vector<int>& nodes() const override { return mailbox_->nodes(); }
  std::unique_ptr<Message> send(int to, int tag, const void* data, std::size_t bytes) override {
    // Read only: the receiving half is the one that is written.
    return std::make_unique<Letter>(mailbox_, Mailbox::Place{rank_, to, tag}, /*sending=*/true,
                                    const_cast<void*>(data), bytes);
  }
  std::unique_ptr<Message> receive(int from, int tag, void* data, std::size_t bytes) override {
    return std::make_unique<Letter>(mailbox_, Mailbox::Place{from, rank_, tag}, /*sending=*/false,
                                    data, bytes);
  }
  std::string failure() const override { return mailbox_->failure(); }
  void abort(const std::string& why) noexcept override {
    mailbox_->fail("rank " + std::to_string(rank_) + ": " + why);
  }

 private:
  class Letter : public Message {
   public:
    Letter(std::shared_ptr<Mailbox> mailbox, const Mailbox::Place& place, bool sending, void* data,
           std::size_t bytes)
        : mailbox_(std::move(mailbox)), place_(place), half_(std::make_shared<Half>()) {
      half_->data = data;
      half_->bytes = bytes;
      mailbox_->post(place_, sending, half_);
    }
    ~Letter() override {
      if (!half_->done) mailbox_->withdraw(place_, half_);
    }
    bool done() override { return half_->done; }

   private:
    std::shared_ptr<Mailbox> mailbox_;
    Mailbox::Place place_;
    std::shared_ptr<Half> half_;
  };

  std::shared_ptr<Mailbox> mailbox_;
  int rank_;
};

}  // namespace

void run_threads(int size, const std::function<void(Communicator&)>& body,
                 const WaitOptions& options, const std::vector<int>& nodes) {
  TGR_CHECK(size >= 1, "a world of ", size, " ranks; use at least 1");
  TGR_CHECK(nodes.empty() || static_cast<int>(nodes.size()) == size, nodes.size(), " nodes for ",
            size, " ranks");
  const auto mailbox = std::make_shared<Mailbox>(
      nodes.empty() ? std::vector<int>(static_cast<std::size_t>(size), 0) : nodes);
  const auto run_rank = [&](int rank) {
    const auto engine =
        std::make_shared<Engine>(std::make_unique<ThreadsTransport>(mailbox, rank), options);
    HostCommunicator world(engine);
    try {
      body(world);
    } catch (const std::exception& error) {
      world.abort(error.what());  // the first one's stays
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  for (std::thread& thread : threads) thread.join();
  TGR_CHECK(mailbox->failure().empty(), mailbox->failure());
}

}  // namespace turbogr::dist
