#include "turbogr/train/dense_reducer.h"

#include <utility>

#include "turbogr/core/device_memory.h"

namespace turbogr::train {

DenseReducer::DenseReducer(const Context& ctx, dist::Communicator& ranks,
                           std::vector<GradientBlock> blocks, std::int64_t bucket_bytes)
    : ctx_(ctx), ranks_(ranks), blocks_(std::move(blocks)) {
  if (ranks.size() == 1) return;  // nothing to add up
  std::int64_t first = 0;
  std::int64_t values = 0;
  for (std::int64_t block = 0; block < std::ssize(blocks_); ++block) {
    values += blocks_[static_cast<std::size_t>(block)].count;
    const bool full = values * static_cast<std::int64_t>(sizeof(float)) >= bucket_bytes;
    if (!full && block + 1 < std::ssize(blocks_)) continue;
    buckets_.push_back({first, block + 1, Tensor(DType::kF32, {values}, ctx.device()), {}});
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
  float* const begin = bucket.values.view<float, 1>().data;
  float* to = begin;
  for (std::int64_t block = bucket.first; block < bucket.last; ++block) {
    const GradientBlock& from = blocks_[static_cast<std::size_t>(block)];
    copy_bytes(ctx_, to, from.data, static_cast<std::size_t>(from.count) * sizeof(float));
    to += from.count;
  }
  bucket.sums = ranks_.start_all_reduce({begin, bucket.values.size()}, dist::Reduce::kSum);
}

void DenseReducer::finish() {
  if (ranks_.size() == 1) return;
  ready(std::ssize(blocks_));
  for (Bucket& bucket : buckets_) {
    bucket.sums.wait();
    const float* from = bucket.values.view<float, 1>().data;
    for (std::int64_t block = bucket.first; block < bucket.last; ++block) {
      const GradientBlock& to = blocks_[static_cast<std::size_t>(block)];
      copy_bytes(ctx_, to.data, from, static_cast<std::size_t>(to.count) * sizeof(float));
      from += to.count;
    }
  }
  started_ = 0;
}

std::size_t DenseReducer::bytes() const {
  std::size_t total = 0;
  for (const Bucket& bucket : buckets_) total += bucket.values.bytes();
  return total;
}

}  // namespace turbogr::train
