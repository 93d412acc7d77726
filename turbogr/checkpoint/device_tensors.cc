#include "turbogr/checkpoint/device_tensors.h"

#include "turbogr/core/device_memory.h"

namespace turbogr::checkpoint {

void read_tensors(const Context& ctx, const Checkpoint& checkpoint,
                  const std::vector<NamedTensor>& tensors, const std::vector<std::string>& shards) {
  std::vector<Tensor> staged;
  std::vector<NamedTensor> host = tensors;
  for (NamedTensor& tensor : host) {
    if (tensor.device == Device::kPinned) tensor.device = Device::kCpu;  // the host's own memory
    if (tensor.device == Device::kCpu) continue;
    staged.emplace_back(tensor.dtype, tensor.shape);
    tensor = named(tensor.name, staged.back());
  }
  if (shards.empty()) {
    for (const NamedTensor& tensor : host) checkpoint.read(tensor);
  } else {
    checkpoint.read_all(host, shards);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].data != host[i].data) {
      copy_bytes(ctx, tensors[i].data, host[i].data, host[i].bytes());
    }
  }
  synchronize(ctx);
}

}  // namespace turbogr::checkpoint
