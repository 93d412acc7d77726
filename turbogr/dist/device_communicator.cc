#include "turbogr/dist/device_communicator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::dist {

std::unique_ptr<Communicator> make_device_communicator(DeviceLink link,
                                                       std::unique_ptr<Communicator> host,
                                                       const Context& ctx,
                                                       const WaitOptions& options) {
  if (link == DeviceLink::kNccl) return make_nccl(std::move(host), ctx, options);
  return make_staged(std::move(host), ctx);
}

int gpu_of_rank(const Communicator& world, int num_gpus) {
  TGR_CHECK(num_gpus >= 1,
            "no usable NVIDIA GPU was found; set device = \"cpu\", or check "
            "`nvidia-smi`");
  const std::vector<int>& nodes = world.nodes();
  const auto own = nodes.begin() + world.rank();
  return static_cast<int>(std::count(nodes.begin(), own, *own)) % num_gpus;
}

LinkChoice choose_link(Communicator& world, const std::string& wanted,
                       const std::string& own_device_id) {
  TGR_CHECK(wanted == "auto" || wanted == "nccl" || wanted == "staged", "unknown link '", wanted,
            "'; use auto, nccl or staged");
  struct Place {
    std::array<char, 32> id = {};
    int has_nccl = 0;
  };
  Place own;
  std::copy_n(own_device_id.begin(), std::min(own_device_id.size(), own.id.size()), own.id.begin());
  own.has_nccl = has_nccl() ? 1 : 0;
  const std::vector<Place> places = world.all_gather_value(own);
  const auto share_a_gpu = [&] {
    for (std::size_t a = 0; a < places.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (places[a].id == places[b].id) return true;
      }
    }
    return false;
  };
  const bool all_have_nccl =
      std::all_of(places.begin(), places.end(), [](const Place& place) { return place.has_nccl; });
  if (wanted == "staged") return {DeviceLink::kStaged, "asked for by dist.link"};
  if (share_a_gpu()) {
    TGR_CHECK(wanted == "auto",
              "dist.link = \"nccl\" needs a GPU for every rank, and ranks share "
              "one; start fewer ranks, or use \"staged\" or \"auto\"");
    return {DeviceLink::kStaged, "ranks share a GPU"};
  }
  if (!all_have_nccl) {
    TGR_CHECK(wanted == "auto", "dist.link = \"nccl\": ", nccl_version(), " (rank ", world.rank(),
              "); use \"staged\" or \"auto\"");
    return {DeviceLink::kStaged, "NCCL is not on every rank: " + nccl_version()};
  }
  return {DeviceLink::kNccl, "NCCL " + nccl_version()};
}

}  // namespace turbogr::dist
