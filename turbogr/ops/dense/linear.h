// A linear layer with its epilogue in one pass: z = x W + bias, y = act(z) + residual. The weights
// are packed once per update into the layouts the products want; every call after that reuses them.
//
//   PackedWeight<float> weight(ctx, width, 4 * width);
//   weight.pack(ctx, w);                                       // after each update of w
//   linear<float>(ctx, x, weight, {.activation = Activation::kSilu}, y, z);
//   linear_backward<float>(ctx, x, weight, dy, {Activation::kSilu, z}, {dx, dw, db});
//
// On a CPU, products of f32 and bf16 run on oneDNN, one thread a call, over tiles whose cut depends
// on the shape alone: the result's bits do not depend on the number of threads. bf16 sums in f32;
// without the instruction set's own bf16 products (below SimdLevel::kAvx512Bf16) it is widened to
// f32 by tiles. Small f32 weights (up to 32,768 elements) have products of our own, which allocate
// nothing. On a GPU the order of a sum is that of an algorithm chosen by timing, or by the shape
// where the context is deterministic (matmul_cuda.h).
//
// A warm call makes no primitive and takes its scratch from the workspace. What it still allocates
// is oneDNN 2.6's own bookkeeping, freed before the call returns: for each product (a tile of 128 x
// 256 outputs) 16 small blocks by operator new, 688 bytes together, and 8 by malloc, 3 KB, for
// handles of the operands and a map of arguments; for each tile of dw also the library's packing
// buffer by malloc, up to about 1 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

enum class Activation : std::uint8_t { kNone, kSilu };

// W [K, N] in the layouts of x W and dz W^T, and the prepared products. Owned by whoever owns W;
// read by any number of threads. Made for one Context's instruction set.
template <class T>
class PackedWeight {
 public:
  PackedWeight(const Context& ctx, std::int64_t inputs, std::int64_t outputs);
  ~PackedWeight();
  PackedWeight(PackedWeight&&) noexcept;
  PackedWeight& operator=(PackedWeight&&) noexcept;

  // Takes over the values of w [K, N]. Scratch: as much as linear_workspace_bytes.
  void pack(const Context& ctx, View<const T, 2> w);
  // Where the products read W as it is (on a GPU): its memory [K, N], which may be written in place
  // of pack. Else empty.
  View<T, 2> plain();

  std::int64_t inputs() const;   // K
  std::int64_t outputs() const;  // N
  std::size_t bytes() const;     // held, both layouts

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

template <class T>
struct LinearOptions {
  View<const Accum<T>, 1> bias;  // [N], or empty
  Activation activation = Activation::kNone;
  Rows<const T> residual;  // [M, N] added after the activation, or empty
};

// x [M, K], y [M, N]; z [M, N] receives the values before the activation unless it is empty. y may
// be the residual.
template <class T>
void linear(const Context& ctx, Rows<const T> x, const PackedWeight<T>& weight,
            const LinearOptions<T>& options, Rows<T> y, Rows<T> z = {});
template <class T>
std::size_t linear_workspace_bytes(const Context& ctx, const PackedWeight<T>& weight);

template <class T>
struct LinearBackwardOptions {
  Activation activation = Activation::kNone;
  Rows<const T> z;  // [M, N], as saved; needed by an activation
};

// Outputs left empty are not computed.
template <class T>
struct LinearGradients {
  Rows<T> dx;            // [M, K], overwritten; must not overlap x, dy or z
  View<Accum<T>, 2> dw;  // [K, N], added to
  View<Accum<T>, 1> db;  // [N], added to
};

// dz = dy * act'(z); dx = dz W^T, dw += x^T dz, db += column sums of dz. The residual's gradient is
// dy.
template <class T>
void linear_backward(const Context& ctx, Rows<const T> x, const PackedWeight<T>& weight,
                     Rows<const T> dy, const LinearBackwardOptions<T>& options,
                     const LinearGradients<T>& gradients);
template <class T>
std::size_t linear_backward_workspace_bytes(const Context& ctx, const PackedWeight<T>& weight,
                                            std::int64_t rows);

}  // namespace turbogr::ops
