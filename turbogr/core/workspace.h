// Scratch memory, planned once. An operator takes what it needs from the arena inside a scope and
// gives all of it back at the scope's end; a step that has run once allocates nothing.
//
//   WorkspaceScope scratch(ctx.workspace());
//   View<float, 2> sums = scratch.take<float, 2>({rows, width});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "turbogr/core/check.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"

namespace turbogr {

class Workspace {
 public:
  static constexpr std::size_t kAlignment = 256;  // what device kernels want; harmless on a host

  explicit Workspace(std::size_t capacity = 0, Device device = Device::kCpu);
  // Memory of the caller, which cannot grow.
  Workspace(std::byte* memory, std::size_t capacity, Device device)
      : data_(memory), capacity_(capacity), device_(device), borrowed_(true) {}

  // Makes room for at least `capacity` bytes. Only between scopes: memory handed out must not move.
  void reserve(std::size_t capacity);

  std::size_t capacity() const { return capacity_; }
  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }  // the most ever in use: what a plan should reserve

 private:
  friend class WorkspaceScope;
  std::byte* take(std::size_t bytes);

  Tensor memory_;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  Device device_;
  bool borrowed_ = false;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

// Gives back, at its end, all that was taken through it. Scopes nest; not for use from several
// threads.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace& workspace) : workspace_(workspace), start_(workspace.used_) {}
  ~WorkspaceScope() { workspace_.used_ = start_; }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

  // Uninitialised memory.
  template <class T, int Rank>
  View<T, Rank> take(std::array<std::int64_t, Rank> shape) {
    View<T, Rank> view;
    std::size_t count = 1;
    for (int axis = 0; axis < Rank; ++axis) {
      view.shape[axis] = shape[static_cast<std::size_t>(axis)];
      count *= static_cast<std::size_t>(view.shape[axis]);
    }
    view.data = reinterpret_cast<T*>(workspace_.take(count * sizeof(T)));
    return view;
  }
  template <class T>
  View<T, 1> take(std::int64_t count) {
    return take<T, 1>({count});
  }

 private:
  Workspace& workspace_;
  std::size_t start_;
};

// What one take of `count` elements costs an arena; operators' *_workspace_bytes are sums of these.
template <class T>
std::size_t workspace_bytes_of(std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  return (bytes + Workspace::kAlignment - 1) / Workspace::kAlignment * Workspace::kAlignment;
}

}  // namespace turbogr
