#include "turbogr/train/dense_reducer.h"

#include <cstring>
#include <utility>

namespace turbogr::train {

DenseReducer::DenseReducer(dist::Communicator& ranks, std::vector<GradientBlock> blocks,
                           std::int64_t bucket_bytes)
    : ranks_(ranks), blocks_(std::move(blocks)) {
  std::int64_t first = 0;
  std::int64_t values = 0;
  for (std::int64_t block = 0; block < std::ssize(blocks_); ++block) {
    values += blocks_[static_cast<std::size_t>(block)].count;
    const bool full = values * static_cast<std::int64_t>(sizeof(float)) >= bucket_bytes;
    if (!full && block + 1 < std::ssize(blocks_)) continue;
    buckets_.push_back(
        {first, block + 1, std::vector<float>(static_cast<std::size_t>(values)), {}});
    first = block + 1;
    values = 0;
  }
}

void DenseReducer::ready(std::int64_t count) {
  if (ranks_.size() == 1) return;
  while (started_ < buckets_.size() && buckets_[started_].last <= count) {
    start(buckets_[started_++]);
  }
}

void DenseReducer::start(Bucket& bucket) {
  float* to = bucket.values.data();
  for (std::int64_t block = bucket.first; block < bucket.last; ++block) {
    const GradientBlock& from = blocks_[static_cast<std::size_t>(block)];
    std::memcpy(to, from.data, static_cast<std::size_t>(from.count) * sizeof(float));
    to += from.count;
  }
  bucket.sums = ranks_.start_all_reduce(bucket.values, dist::Reduce::kSum);
}

void DenseReducer::finish() {
  if (ranks_.size() == 1) return;
  ready(std::ssize(blocks_));
  for (Bucket& bucket : buckets_) {
    bucket.sums.wait();
    const float* from = bucket.values.data();
    for (std::int64_t block = bucket.first; block < bucket.last; ++block) {
      const GradientBlock& to = blocks_[static_cast<std::size_t>(block)];
      std::memcpy(to.data, from, static_cast<std::size_t>(to.count) * sizeof(float));
      from += to.count;
    }
  }
  started_ = 0;
}

std::size_t DenseReducer::bytes() const {
  std::size_t total = 0;
  for (const Bucket& bucket : buckets_) total += bucket.values.size() * sizeof(float);
  return total;
}

}  // namespace turbogr::train
