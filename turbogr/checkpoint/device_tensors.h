// Checkpoints and tensors that may live on a GPU: files are read through host memory.
#pragma once

#include <string>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/context.h"
#include "turbogr/core/named_tensor.h"

namespace turbogr::checkpoint {

// Each tensor from the checkpoint's one of the same name, shape and format. Where shards are named
// they must hold these tensors and no others.
void read_tensors(const Context& ctx, const Checkpoint& checkpoint,
                  const std::vector<NamedTensor>& tensors,
                  const std::vector<std::string>& shards = {});

}  // namespace turbogr::checkpoint
