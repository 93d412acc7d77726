// Threads that wait for work. parallel_for hands out indices from a shared counter, so uneven items
// spread evenly; what an index computes never depends on which thread took it, so any thread count
// gives the same bits as long as items write apart.
//
//   parallel_for(pool, num_rows, [&](std::int64_t row, int worker) { ... });
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace turbogr {

class ThreadPool {
 public:
  // The calling thread is one of the workers. 0 means one a core.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  using Body = void (*)(void* state, std::int64_t index, int worker);
  // Calls body once for every index below count; worker is in [0, size()). Rethrows the first
  // exception after all threads have stopped. One caller at a time; a call from inside a body runs
  // on that thread.
  void run(std::int64_t count, Body body, void* state);

 private:
  struct Shared;
  int num_threads_ = 1;
  std::unique_ptr<Shared> shared_;
};

template <class Function>
void parallel_for(ThreadPool& pool, std::int64_t count, Function&& function) {
  using Plain = std::remove_reference_t<Function>;
  pool.run(
      count,
      [](void* state, std::int64_t index, int worker) {
        (*static_cast<Plain*>(state))(index, worker);
      },
      const_cast<std::remove_const_t<Plain>*>(&function));
}

// Cuts [0, count) into pieces of `grain` (the last may be short): the cut never depends on the
// thread count.
template <class Function>
void parallel_ranges(ThreadPool& pool, std::int64_t count, std::int64_t grain,
                     Function&& function) {
  parallel_for(pool, (count + grain - 1) / grain, [&](std::int64_t piece, int worker) {
    const std::int64_t begin = piece * grain;
    const std::int64_t end = begin + grain < count ? begin + grain : count;
    function(begin, end, worker);
  });
}

}  // namespace turbogr
