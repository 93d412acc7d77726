// The end of a training step on either device, without the host in between: how large the gradients
// are, how they are scaled, and the weights' update, which does nothing when a gradient or the loss
// is not finite.
//
//   UpdateSlices slices(ctx, all_parameters);                    // once
//   zero_gradients(ctx, slices);                                 // then forward and backward
//   squared_sum(ctx, slices, &squares[0]);
//   squared_sum(ctx, row_gradients, &squares[1]);
//   make_step_scale(ctx, squares, losses, {.clip = 1.0}, scale); // scale: one StepScale
//   adamw(ctx, slices, settings, scale);
//   update_rows(ctx, RowOptimiser::kAdamW, table, ids, row_gradients, settings, scale);
//
// Every pointer and view is memory of the context's device; sums are made in f64 and in an order
// that depends on the counts alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/ops/rows/adamw_coefficients.h"
#include "turbogr/ops/rows/row_keys.h"

namespace turbogr::ops {

// What an update reads from its device's memory, and a host may copy back whenever it likes. All
// f64, so that a kF64 tensor of four elements holds one.
struct StepScale {
  double scale;   // of gradients: clip / norm where the norm is above clip, else 1
  double finite;  // 1, or 0: nothing may be updated
  double norm;    // square root of the squares
  double loss;    // loss_weight * sum of the losses
};

// A run of `count` f32 weights with what AdamW keeps beside them.
struct UpdateSlice {
  float* weight = nullptr;
  float* gradient = nullptr;  // changed by zero_gradients alone
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  std::int64_t count = 0;
  double decay_factor = 1;  // of the decay: 0 for biases, norms and tables
  bf16* rounded = nullptr;  // [count], kept equal to the weights rounded; or null
};

// Slices with a table of their pieces in the device's memory, so that one launch goes over all.
class UpdateSlices {
 public:
  static constexpr std::int64_t kPiece = 1 << 14;
  struct Piece {
    std::int64_t slice, begin;
  };

  UpdateSlices() = default;
  UpdateSlices(const Context& ctx, std::vector<UpdateSlice> slices);

  std::span<const UpdateSlice> slices() const { return slices_; }
  std::int64_t num_pieces() const { return num_pieces_; }
  const UpdateSlice* device_slices() const;
  const Piece* device_pieces() const;

 private:
  std::vector<UpdateSlice> slices_;
  std::int64_t num_pieces_ = 0;
  Tensor table_;   // kU8: the slices
  Tensor pieces_;  // kI64 [P, 2]
};

// All gradients become zero.
void zero_gradients(const Context& ctx, const UpdateSlices& slices);

// *sum = the sum of squares of all gradients; not finite when one of them is not.
void squared_sum(const Context& ctx, const UpdateSlices& slices, double* sum);
void squared_sum(const Context& ctx, View<const float, 1> values, double* sum);
// Of either; `count` is the number of values, of all slices together.
std::size_t squared_sum_workspace_bytes(const Context& ctx, const UpdateSlices& slices);
std::size_t squared_sum_workspace_bytes(const Context& ctx, std::int64_t count);

struct StepScaleOptions {
  double clip = 0;         // the longest gradient let through; 0: any
  double loss_weight = 1;  // of the losses' sum
  // The first so many squares make the norm; those after them only have to be finite.
  std::int64_t counted = std::numeric_limits<std::int64_t>::max();
};

// squares: sums of squares that together make the norm. losses: sums of losses, [0] where there
// are none.
void make_step_scale(const Context& ctx, View<const double, 1> squares,
                     View<const double, 1> losses, const StepScaleOptions& options,
                     StepScale* scale);

// *value *= factor
void scale_value(const Context& ctx, double factor, double* value);

// AdamWSettings::gradient_scale times scale->scale is applied to gradients on their way in; nothing
// is changed unless scale->finite. A null scale: all finite, factor 1.
void adamw(const Context& ctx, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale);

enum class RowOptimiser : std::uint8_t {
  kAdamW,    // moments of the rows named, decoupled decay
  kAdaGrad,  // v += mean(g^2) a row, w = w (1 - rate decay) - rate g / sqrt(v + epsilon); see
             // AdamWSettings::epsilon_outside and decay_in_gradient
  kSgd       // w = w (1 - rate decay) - rate g
};

// A table [V, D] and its optimiser's state. One of the three formats is there; what is not f32 is
// rounded by chance (row_keys.h).
struct TableRows {
  View<float, 2> weight;
  View<bf16, 2> weight_bf16;
  View<f16, 2> weight_f16;
  RowKeys keys;                  // of its rows
  View<float, 2> first_moment;   // [V, D]: AdamW
  View<float, 2> second_moment;  // [V, D]: AdamW; [V, 1]: AdaGrad

  bool in_f32() const { return weight.data != nullptr; }
  // Calls body with the weights of a table that is not in f32.
  template <class Body>
  void with_rounded(Body&& body) const {
    if (weight_f16.data != nullptr) {
      body(weight_f16);
    } else {
      body(weight_bf16);
    }
  }
};

// One step for the rows `ids` [U], distinct, whose gradients are the rows of `gradient` [U, D]. An
// id outside [0, V) is an Error on a CPU; on a GPU the row is left out.
void update_rows(const Context& ctx, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale);

// Where rows go besides the table, in T (float or bf16): row i to rows(places(i)), or nowhere where
// that is negative.
template <class T>
struct RowCopies {
  View<const std::int32_t, 1> places;  // [U]
  Rows<T> rows;
};
// Some of the rows, so that a table in host memory can be updated beside other work.
struct RowPart {
  View<const std::int32_t, 1> which;  // of [0, U), distinct; null: all
  bool narrow = false;                // GPU: on a few multiprocessors, enough to fill the link
};
// The same, and copies of the rows as they are afterwards, updated or not. Of a table in f32.
template <class T>
void update_rows(const Context& ctx, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale, const RowCopies<T>& copies,
                 const RowPart& part = {});

}  // namespace turbogr::ops
