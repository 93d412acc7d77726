#include "turbogr/core/background_worker.h"

#include <utility>

#include "turbogr/core/check.h"

namespace turbogr {

BackgroundWorker::BackgroundWorker() : thread_([this] { run(); }) {}

BackgroundWorker::~BackgroundWorker() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_ == nullptr; });
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundWorker::begin() {
  const std::lock_guard lock(mutex_);
  TGR_ASSERT(work_ == nullptr);
}

void BackgroundWorker::wake(Call work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
  }
  changed_.notify_all();
}

void BackgroundWorker::join() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_ == nullptr; });
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) {
    std::rethrow_exception(error);
  }
}

void BackgroundWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || work_ != nullptr; });
    if (stopping_) return;
    lock.unlock();
    std::exception_ptr error;
    try {
      work_(place_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace turbogr
