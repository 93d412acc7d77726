// Between streams of a GPU, without the host waiting: what one gets from now on runs after what
// another has to do. For streams of somebody else's (PyTorch's), beside a context's own.
#pragma once

#include <memory>

namespace turbogr {

// May be used again and again; every use stands for itself. Of the calling thread's GPU.
class StreamOrder {
 public:
  StreamOrder();

  void put_after(void* later, void* earlier);  // each a cudaStream_t

 private:
  std::shared_ptr<void> event_;
};

}  // namespace turbogr
