// A thread that does one piece of work at a time, beside the thread that gave it.
//
//   BackgroundWorker worker;
//   worker.start([&] { prepare(next); });
//   compute(current);
//   worker.join();                        // throws what the work threw
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace turbogr {

class BackgroundWorker {
 public:
  BackgroundWorker();
  ~BackgroundWorker();  // waits for the work under way
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  void start(std::function<void()> work);  // none may be under way
  void join();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: idle
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace turbogr
