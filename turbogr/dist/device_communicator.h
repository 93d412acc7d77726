// Ranks over the memory of their contexts' devices. The collectives are those of communicator.h, in
// the order of the context's stream: a collective begins when all that was queued there before it
// is done, and what is queued there after the wait sees its result. The host need not wait for a
// GPU.
//
//   const auto ranks = make_staged(world.split(0, world.rank(), "gradients"), ctx);
//   Pending sums = ranks->start_all_reduce({gradient, count}, Reduce::kSum);
//   ...
//   sums.wait();
//   adamw(ctx, ...);
//
// barrier() is one of the hosts, after their streams have run dry. all_gather_value is for hosts:
// use the communicator underneath. A communicator serves one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "turbogr/core/context.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::dist {

// Staged: through pinned host memory and `host`'s messages. Works for any ranks, several on one GPU
// included; sums are those of the host communicator, bit for bit. On a CPU the "device" is the
// host's memory.
std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host, const Context& ctx);

// NCCL: from GPU to GPU; every rank has one of its own. `host` introduces the ranks to each other.
// A collective that does not end within options.timeout_seconds ends all ranks, by host's abort.
// Throws where there is no NCCL.
std::unique_ptr<Communicator> make_nccl(std::unique_ptr<Communicator> host, const Context& ctx,
                                        const WaitOptions& options = {});

bool built_with_nccl();
// Whether the library was found. It is looked for when first asked about, as libnccl.so.2 or where
// the environment's TGR_NCCL says.
bool has_nccl();
std::string nccl_version();  // "2.28.9", or why there is none

// How ranks over GPUs are to reach each other.
enum class DeviceLink : std::uint8_t { kStaged, kNccl };

std::unique_ptr<Communicator> make_device_communicator(DeviceLink link,
                                                       std::unique_ptr<Communicator> host,
                                                       const Context& ctx,
                                                       const WaitOptions& options = {});

// The rank's GPU: by its place among the ranks of its machine, in turn where there are fewer GPUs.
int gpu_of_rank(const Communicator& world, int num_gpus);

// `wanted`: auto, nccl or staged. Collective. Auto takes NCCL where every rank has a GPU of its own
// and the library is there; `reason` says why it was or was not.
struct LinkChoice {
  DeviceLink link = DeviceLink::kStaged;
  std::string reason;
};
LinkChoice choose_link(Communicator& world, const std::string& wanted,
                       const std::string& own_device_id);

}  // namespace turbogr::dist
