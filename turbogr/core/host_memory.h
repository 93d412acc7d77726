// How much memory this process may still take. A host that promises more than it has ends the
// process that uses it, without a word: tensors ask first (tensor.h), so that the word can be said.
#pragma once

#include <cstddef>
#include <string>

namespace turbogr {

// Of the machine, or of the control group (a container, a job) or of the address space (ulimit -v)
// where these have less; the largest number where the system does not say.
std::size_t available_host_memory();

// While one lives, tensors that this thread makes in host memory take addresses and no memory: how
// much a run would need can be told where it is not there. Nothing may be computed with them.
class PlanOnly {
 public:
  PlanOnly();
  ~PlanOnly();
  PlanOnly(const PlanOnly&) = delete;
  PlanOnly& operator=(const PlanOnly&) = delete;
};
bool plans_only();  // whether one lives on this thread

namespace detail {
// The same from the folders /proc and /sys/fs/cgroup stand for.
std::size_t available_host_memory(const std::string& proc, const std::string& groups);
// Whether so much can be taken of `available` with something left for others.
bool fits(std::size_t bytes, std::size_t available);
// False when it is known that so much is not there.
bool host_has(std::size_t bytes);
}  // namespace detail

}  // namespace turbogr
