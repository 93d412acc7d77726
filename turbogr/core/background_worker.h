// A thread that does one piece of work at a time, beside the thread that gave it.
//
//   BackgroundWorker worker;
//   worker.start([&] { prepare(next); });
//   compute(current);
//   worker.join();                        // throws what the work threw
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace turbogr {

class BackgroundWorker {
 public:
  BackgroundWorker();
  ~BackgroundWorker();  // waits for the work under way
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // None may be under way. The work is kept inside, so that a step which gives some allocates
  // nothing.
  template <class Work>
  void start(Work work) {
    static_assert(sizeof(Work) <= kMostBytes && alignof(Work) <= alignof(std::max_align_t));
    begin();
    ::new (static_cast<void*>(place_)) Work(std::move(work));
    wake([](std::byte* place) {
      struct Destroy {
        void operator()(Work* done) const { std::destroy_at(done); }
      };
      const std::unique_ptr<Work, Destroy> own(std::launder(reinterpret_cast<Work*>(place)));
      (*own)();
    });
  }
  void join();

 private:
  static constexpr std::size_t kMostBytes = 160;
  using Call = void (*)(std::byte* place);

  void begin();
  void wake(Call work);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  Call work_ = nullptr;  // null: idle
  alignas(std::max_align_t) std::byte place_[kMostBytes];
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace turbogr
