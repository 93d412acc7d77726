// One sorted run inside a temporary file, read front to back through a small buffer, and the merge
// of several: the smallest head first, the earlier run on ties.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "turbogr/core/file.h"

namespace turbogr::data {

class RunReader {
 public:
  RunReader(int descriptor, const std::filesystem::path& path, std::int64_t begin, std::int64_t end,
            std::size_t buffer_bytes)
      : descriptor_(descriptor),
        path_(&path),
        at_(begin),
        end_(end),
        capacity_(buffer_bytes),
        buffer_(new std::byte[buffer_bytes]) {}

  // The next `bytes`, valid until the next call; null at the end. Grows for a long record.
  const std::byte* take(std::size_t bytes) {
    if (filled_ - used_ < bytes && !fill(bytes)) return nullptr;
    used_ += bytes;
    return buffer_.get() + used_ - bytes;
  }

 private:
  bool fill(std::size_t bytes) {
    const std::size_t left = filled_ - used_;
    if (static_cast<std::int64_t>(left) + (end_ - at_) < static_cast<std::int64_t>(bytes)) {
      return false;
    }
    if (bytes > capacity_) {
      std::unique_ptr<std::byte[]> larger(new std::byte[bytes]);
      std::copy_n(buffer_.get() + used_, left, larger.get());
      buffer_ = std::move(larger);
      capacity_ = bytes;
    } else {
      std::copy_n(buffer_.get() + used_, left, buffer_.get());
    }
    used_ = 0;
    const auto count =
        static_cast<std::size_t>(std::min(static_cast<std::int64_t>(capacity_ - left), end_ - at_));
    read_at(descriptor_, {buffer_.get() + left, count}, at_, *path_);
    at_ += static_cast<std::int64_t>(count);
    filled_ = left + count;
    return true;
  }

  int descriptor_;
  const std::filesystem::path* path_;
  std::int64_t at_;
  std::int64_t end_;
  std::size_t capacity_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t used_ = 0;
  std::size_t filled_ = 0;
};

// Cursor has: bool advance() (to its next record), and operator< between two cursors' heads.
// Calls visit(cursor) for every record of all, in order; the cursors stand in order of their runs.
template <class Cursor, class Visit>
void merge_runs(std::vector<Cursor>& cursors, Visit&& visit) {
  std::vector<std::uint32_t> heap;
  for (std::uint32_t run = 0; run < cursors.size(); ++run) {
    if (cursors[run].advance()) heap.push_back(run);
  }
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    if (cursors[a] < cursors[b]) return true;
    return !(cursors[b] < cursors[a]) && a < b;
  };
  const auto sift_down = [&](std::size_t at) {
    const std::uint32_t run = heap[at];
    while (true) {
      std::size_t child = 2 * at + 1;
      if (child >= heap.size()) break;
      if (child + 1 < heap.size() && before(heap[child + 1], heap[child])) ++child;
      if (!before(heap[child], run)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = run;
  };
  for (std::size_t at = heap.size() / 2; at-- > 0;) sift_down(at);
  while (!heap.empty()) {
    visit(cursors[heap[0]]);
    if (!cursors[heap[0]].advance()) {
      heap[0] = heap.back();
      heap.pop_back();
      if (heap.empty()) break;
    }
    sift_down(0);
  }
}

}  // namespace turbogr::data
