// Stands for nccl_cuda.cc in a build without CUDA or without NCCL's header.
#include "turbogr/core/check.h"
#include "turbogr/dist/device_communicator.h"

namespace turbogr::dist {

bool built_with_nccl() { return false; }
bool has_nccl() { return false; }
std::string nccl_version() { return "not in this build"; }

std::unique_ptr<Communicator> make_nccl(std::unique_ptr<Communicator>, const Context&,
                                        const WaitOptions&) {
  detail::throw_error(
      "this build has no NCCL; put nccl.h beside CUDA's headers and configure with "
      "-DTGR_CUDA=ON -DTGR_NCCL=ON, or set dist.link = \"staged\"");
}

}  // namespace turbogr::dist
