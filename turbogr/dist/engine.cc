#include "turbogr/dist/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"

namespace turbogr::dist {
namespace {

using Clock = std::chrono::steady_clock;

// How often the background thread looks: the price of waiting less is a core.
constexpr auto kBackgroundPause = std::chrono::microseconds(50);
constexpr auto kWaitPause = std::chrono::microseconds(20);
constexpr int kLooksBeforePause = 50;

// "rank 2", "ranks 1, 2 and 5", "ranks 0, 1, 2 and 60 more".
std::string ranks_text(std::vector<int> ranks) {
  constexpr std::size_t kNamed = 8;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kNamed);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > named) text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

}  // namespace

// An operation under way: the messages of its present phase.
struct Engine::Shared {
  struct Active {
    Operation operation;
    std::size_t phase = 0;
    bool finished = false;
    bool between = false;  // phases, and the lock is not held
    std::exception_ptr error;
    struct Posted {
      int peer;
      std::unique_ptr<Transport::Message> message;
    };
    std::vector<Posted> posted;
  };

  Shared(std::unique_ptr<Transport> transport_in, const WaitOptions& options_in)
      : transport(std::move(transport_in)),
        options(options_in),
        seconds_waited(static_cast<std::size_t>(transport->size())) {}

  // All below with the lock held.
  void post(Active& one) {
    const Phase& phase = one.operation.phases[one.phase];
    const int tag = one.operation.first_tag + static_cast<int>(one.phase);
    const int own = transport->rank();
    const Phase::Send* to_self = nullptr;
    for (const Phase::Receive& receive : phase.receives) {
      if (receive.peer == own) continue;
      one.posted.push_back(
          {receive.peer, transport->receive(receive.peer, tag, receive.data, receive.bytes)});
    }
    for (const Phase::Send& send : phase.sends) {
      if (send.peer == own) {
        to_self = &send;
      } else {
        one.posted.push_back({send.peer, transport->send(send.peer, tag, send.data, send.bytes)});
      }
    }
    if (to_self == nullptr) return;
    for (const Phase::Receive& receive : phase.receives) {
      if (receive.peer != own) continue;
      TGR_ASSERT(receive.bytes == to_self->bytes);
      if (receive.bytes > 0 && receive.data != to_self->data) {
        std::memmove(receive.data, to_self->data, receive.bytes);
      }
    }
  }

  // What follows a phase (sums of what has arrived) runs without the lock, so that others can start
  // and end operations meanwhile; one thread at a time has it.
  void advance(std::unique_lock<std::mutex>& lock, Active& one) {
    while (!one.finished && !one.between) {
      auto& posted = one.posted;
      posted.erase(std::remove_if(posted.begin(), posted.end(),
                                  [](Active::Posted& each) { return each.message->done(); }),
                   posted.end());
      if (!posted.empty()) return;
      if (const auto& after = one.operation.phases[one.phase].after) {
        one.between = true;
        lock.unlock();
        std::exception_ptr error;
        try {
          after();
        } catch (...) {
          error = std::current_exception();
        }
        lock.lock();
        one.between = false;
        if (error) std::rethrow_exception(error);
      }
      if (++one.phase == one.operation.phases.size()) {
        one.finished = true;
      } else {
        post(one);
      }
    }
  }

  void advance_all(std::unique_lock<std::mutex>& lock) {
    const std::vector<std::shared_ptr<Active>> all(active.begin(), active.end());
    for (const std::shared_ptr<Active>& one : all) {
      try {
        advance(lock, *one);
      } catch (...) {
        one->error = std::current_exception();
        one->finished = true;
      }
      if (one->finished) active.remove(one);
    }
  }

  std::vector<int> missing(const Active& one) const {
    std::vector<int> ranks;
    for (const Active::Posted& posted : one.posted) ranks.push_back(posted.peer);
    return ranks;
  }

  void work() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      if (active.empty() || waiting > 0) {
        wake.wait(lock);
        continue;
      }
      advance_all(lock);
      wake.wait_for(lock, kBackgroundPause);
    }
  }

  // Whoever's messages are still missing are waited for alike.
  void count_wait(const Active& one, double seconds) {
    const double each = seconds / static_cast<double>(std::max<std::size_t>(1, one.posted.size()));
    for (const Active::Posted& posted : one.posted) {
      seconds_waited[static_cast<std::size_t>(posted.peer)] += each;
    }
  }

  void wait(Active& one) {
    const auto begin = Clock::now();
    double counted = 0;
    bool warned = false;
    std::unique_lock lock(mutex);
    ++waiting;
    for (int look = 0; !one.finished; ++look) {
      advance_all(lock);
      if (one.finished) break;
      const std::string failure = transport->failure();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      count_wait(one, seconds - std::exchange(counted, seconds));
      if (!failure.empty() || seconds > options.timeout_seconds) {
        const std::string waited = ranks_text(missing(one));
        end_wait(one);
        one.posted.clear();
        TGR_CHECK(failure.empty(), failure);
        detail::throw_error(one.operation.what, " has waited ", options.timeout_seconds, " s for ",
                            waited, "; look there, or raise dist.timeout");
      }
      if (!warned && seconds > options.warn_seconds) {
        warned = true;
        log::warn("rank {}: {} has waited {:.0f} s for {}", transport->rank(), one.operation.what,
                  seconds, ranks_text(missing(one)));
      }
      lock.unlock();
      if (look < kLooksBeforePause) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kWaitPause);
      }
      lock.lock();
    }
    end_wait(one);
    if (one.error) std::rethrow_exception(one.error);
  }

  void end_wait(Active& one) {
    --waiting;
    active.remove_if([&](const std::shared_ptr<Active>& other) { return other.get() == &one; });
    wake.notify_all();
  }

  std::unique_ptr<Transport> transport;
  const WaitOptions options;
  std::vector<double> seconds_waited;  // for each rank
  std::mutex mutex;
  std::condition_variable wake;  // of the background thread
  std::list<std::shared_ptr<Active>> active;
  int waiting = 0;
  bool stopping = false;
  std::thread thread;
};

class Engine::State : public Pending::State {
 public:
  State(std::shared_ptr<Shared> shared, std::shared_ptr<Shared::Active> active)
      : shared_(std::move(shared)), active_(std::move(active)) {}

  bool done() override {
    std::unique_lock lock(shared_->mutex);
    if (!active_->finished) shared_->advance_all(lock);
    return active_->finished;
  }
  void wait() override { shared_->wait(*active_); }
  void give_up() noexcept override {
    std::unique_lock lock(shared_->mutex);
    while (active_->between) {  // another thread reads and writes the memory that may go
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    active_->posted.clear();
    active_->finished = true;
    shared_->active.remove(active_);
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Shared::Active> active_;
};

Engine::Engine(std::unique_ptr<Transport> transport, const WaitOptions& options)
    : shared_(std::make_shared<Shared>(std::move(transport), options)) {
  shared_->thread = std::thread([shared = shared_.get()] { shared->work(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.notify_all();
  shared_->thread.join();
}

const Transport& Engine::transport() const { return *shared_->transport; }

Pending Engine::start(Operation operation) {
  TGR_ASSERT(!operation.phases.empty() && operation.phases.size() <= kMaxPhases);
  auto active = std::make_shared<Shared::Active>();
  active->operation = std::move(operation);
  {
    std::unique_lock lock(shared_->mutex);
    shared_->post(*active);
    shared_->active.push_back(active);
    try {
      shared_->advance(lock, *active);
    } catch (...) {
      shared_->active.remove(active);
      throw;
    }
    if (active->finished) shared_->active.remove(active);
  }
  shared_->wake.notify_all();
  return Pending(std::make_shared<State>(shared_, std::move(active)));
}

void Engine::add_seconds_waited(std::span<double> by_rank) const {
  const std::lock_guard lock(shared_->mutex);
  TGR_ASSERT(by_rank.size() == shared_->seconds_waited.size());
  for (std::size_t r = 0; r < by_rank.size(); ++r) by_rank[r] += shared_->seconds_waited[r];
}

void Engine::abort(const std::string& why) noexcept {
  const std::lock_guard lock(shared_->mutex);
  shared_->transport->abort(why);
}

}  // namespace turbogr::dist
