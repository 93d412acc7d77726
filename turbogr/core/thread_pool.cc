#include "turbogr/core/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "turbogr/core/check.h"

namespace turbogr {
namespace {

// Set while this thread works inside a pool, so that a nested call runs in place.
thread_local int current_worker = -1;

constexpr int kMostThreads = 4096;

// A step is hundreds of jobs of some ten microseconds with less than that between them, and waking
// a sleeper takes as long. So whoever waits looks around for about thirty microseconds first.
constexpr int kLooks = 2000;

inline void rest_a_moment() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

template <class Ready>
void look_for(int looks, Ready&& ready) {
  for (int i = 0; i < looks && !ready(); ++i) rest_a_moment();
}

}  // namespace

struct ThreadPool::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable finished;
  std::atomic<std::uint64_t> generation{0};  // one more with every job
  std::atomic<int> active{0};                // helpers inside the current job
  std::atomic<bool> stopping{false};
  bool open = false;  // whether helpers may still join the current job
  int asleep = 0;     // helpers that want to be woken
  int looks = 0;      // before one sleeps
  std::exception_ptr failure;

  Body body = nullptr;
  void* state = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};

  std::vector<std::thread> helpers;

  void work(int worker) {
    current_worker = worker;
    try {
      for (;;) {
        const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= count) break;
        body(state, index, worker);
      }
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    current_worker = -1;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread& helper : helpers) helper.join();
    helpers.clear();
  }

  void helper_loop(int worker) {
    std::uint64_t seen = 0;
    const auto called = [&] { return stopping || generation != seen; };
    for (;;) {
      look_for(looks, called);
      {
        std::unique_lock lock(mutex);
        ++asleep;
        wake.wait(lock, called);
        --asleep;
        if (stopping) return;
        seen = generation;
        if (!open) continue;  // done before this helper came
        ++active;
      }
      work(worker);
      const std::lock_guard lock(mutex);
      if (--active == 0) finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : shared_(std::make_unique<Shared>()) {
  TGR_CHECK(num_threads >= 0 && num_threads <= kMostThreads, "a thread pool of ", num_threads,
            " threads was asked for; give 1 to ", kMostThreads, ", or 0 for one a core");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  num_threads_ = num_threads != 0 ? num_threads : (cores > 0 ? cores : 1);
  // More threads than cores: one that looks around would hold a core that another needs.
  shared_->looks = num_threads_ <= cores ? kLooks : 0;
  try {
    for (int worker = 1; worker < num_threads_; ++worker) {
      shared_->helpers.emplace_back([this, worker] { shared_->helper_loop(worker); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = shared_->helpers.size() + 1;
    shared_->stop();
    detail::throw_error("only ", started, " of ", num_threads_, " threads could be started (",
                        error.code().message(), "); ask for fewer");
  }
}

ThreadPool::~ThreadPool() { shared_->stop(); }

void ThreadPool::run(std::int64_t count, Body body, void* state) {
  if (count <= 0) return;
  if (num_threads_ == 1 || count == 1 || current_worker >= 0) {
    const int worker = current_worker >= 0 ? current_worker : 0;
    for (std::int64_t index = 0; index < count; ++index) body(state, index, worker);
    return;
  }
  Shared& shared = *shared_;
  bool anyone_asleep = false;
  {
    const std::lock_guard lock(shared.mutex);
    shared.body = body;
    shared.state = state;
    shared.count = count;
    shared.next.store(0, std::memory_order_relaxed);
    shared.failure = nullptr;
    shared.open = true;
    ++shared.generation;
    anyone_asleep = shared.asleep > 0;
  }
  if (anyone_asleep) shared.wake.notify_all();
  shared.work(0);
  {
    const std::lock_guard lock(shared.mutex);
    shared.open = false;
  }
  look_for(shared.looks, [&] { return shared.active == 0; });
  std::unique_lock lock(shared.mutex);
  shared.finished.wait(lock, [&] { return shared.active == 0; });
  if (shared.failure) std::rethrow_exception(shared.failure);
}

}  // namespace turbogr
