// Sums the dense gradients over all ranks in buckets, each on its way as soon as its last gradient
// is final, so that the sums travel while the rest of the backward pass runs. Sums add element by
// element in rank order, or NCCL's: how gradients fall into buckets changes no bit of the former.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::train {

struct GradientBlock {
  float* data = nullptr;
  std::int64_t count = 0;
};

class DenseReducer {
 public:
  // `blocks` in the order in which they become final, in memory of the context's device, over which
  // `ranks` communicate.
  DenseReducer(const Context& ctx, dist::Communicator& ranks, std::vector<GradientBlock> blocks,
               std::int64_t bucket_bytes);

  // The first `count` blocks are final: starts the buckets they fill.
  void ready(std::int64_t count);
  // All are: starts the rest, waits, and leaves the sums where the gradients were.
  void finish();

  std::size_t num_buckets() const { return buckets_.size(); }
  std::size_t bytes() const;

 private:
  struct Bucket {
    std::int64_t first, last;  // blocks
    Tensor values;
    dist::Pending sums;
  };
  void start(Bucket& bucket);

  const Context& ctx_;
  dist::Communicator& ranks_;
  std::vector<GradientBlock> blocks_;
  std::vector<Bucket> buckets_;
  std::size_t started_ = 0;
};

}  // namespace turbogr::train
