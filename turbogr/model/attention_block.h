// The attention half of a layer, HSTU's and FuXi's alike:
//
//   normed    = norm(x)                          LayerNorm in HSTU, RMSNorm in FuXi
//   [U|V|Q|K] = SiLU(normed W + b)               b with projection_bias; SiLU on U alone as asked
//   attended  = attention(Q, K, V)               one map with biases, or three maps
//   mixed     = dropout(U * norm(attended))      or with concat [U | . | U * norm(attended)]
//   y         = x + mixed W_o + b_o              b_o unless output_bias is off
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/model/column_part.h"
#include "turbogr/model/model_options.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/step_input.h"
#include "turbogr/model/weight_matrix.h"
#include "turbogr/ops/attention/fuxi_attention.h"
#include "turbogr/ops/attention/hstu_attention.h"
#include "turbogr/ops/attention/target_attention.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::model {

// What forward keeps for backward, room for `capacity` tokens.
template <class T>
struct AttentionSaved {
  // `kept` bytes for what attention can use again.
  AttentionSaved(const ModelOptions& options, std::int64_t capacity, Device device = Device::kCpu,
                 std::size_t kept = 0);

  Tensor normed;                        // [N, D]
  Tensor linear;                        // [N, P], before SiLU: [U | V | Q | K]
  Tensor activated;                     // [N, P - G], SiLU of [V | Q | K]
  Tensor attended;                      // [N, G]
  Tensor mixed;                         // [N, M]
  Tensor input_mean, input_rstd;        // [N]
  Tensor attended_mean, attended_rstd;  // [N], of each group of heads
  Tensor kept;                          // see HstuAttentionOptions

  std::size_t bytes() const;
};

// What the last layer keeps of targets, where only these are wanted; room for `capacity` of them.
template <class T>
struct TargetSaved {
  TargetSaved(const ModelOptions& options, std::int64_t capacity, Device device = Device::kCpu);

  Tensor input, normed;        // [M, D], their rows of x and of norm(x)
  Tensor projected;            // [M, G + H dq], [U | Q]
  Tensor attended;             // [M, G]
  Tensor dprojected, dnormed;  // as what they are gradients of

  std::size_t bytes() const;
};

// Gradients that live only inside one layer's backward pass; layers share them.
template <class T>
struct AttentionScratch {
  AttentionScratch(const ModelOptions& options, std::int64_t capacity,
                   Device device = Device::kCpu);

  Tensor dmixed, dattended, dprojected, dnormed;

  std::size_t bytes() const;
};

template <class T>
class AttentionBlock {
 public:
  AttentionBlock(const ModelOptions& options, int layer, ParameterSet<T>& parameters);

  // Before the first refresh: see WeightMatrix. Not of forward_targets.
  void use_fp8(const Context& ctx, const ParameterSet<T>& parameters, std::int64_t capacity,
               Fp8Shared<T>& shared);
  std::size_t fp8_bytes() const { return projection_.fp8_bytes() + output_.fp8_bytes(); }
  // Before the first refresh, where forward_targets is to come: the projection in two parts.
  void split_projection();
  void refresh(const Context& ctx, const ParameterSet<T>& parameters);
  void list_rounded(std::vector<T*>& rounded);  // see Model

  // x, y [N, D]; y must not be x.
  void forward(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
               Rows<const T> x, AttentionSaved<T>& saved, Rows<T> y) const;

  // Overwrites dx, which must not be dy; adds to the parameters' gradients.
  void backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                Rows<const T> x, AttentionSaved<T>& saved, Rows<const T> dy,
                AttentionScratch<T>& scratch, Rows<T> dx) const;

  // Of step.targets alone: y, dy [M, D]. What comes after attention is made for targets; so are
  // gates and queries in HSTU where targets are few (step.few_targets), and elsewhere attention is
  // that of all tokens. What of `saved` is theirs has M rows.
  void forward_targets(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
                       Rows<const T> x, AttentionSaved<T>& saved, TargetSaved<T>& targets,
                       Rows<T> y) const;
  void backward_targets(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                        Rows<const T> x, AttentionSaved<T>& saved, TargetSaved<T>& targets,
                        Rows<const T> dy, AttentionScratch<T>& scratch, Rows<T> dx) const;

  // Of the workspace, for steps of up to this shape.
  std::size_t workspace_bytes(const Context& ctx, const ops::AttentionShape& shape) const;

 private:
  struct Affine {  // indices of a norm's weight and bias, or -1
    int weight = -1;
    int bias = -1;
  };
  Affine add_affine(const std::string& name, std::int64_t width, ParameterSet<T>& parameters) const;
  ops::NormOptions<T> norm_options(const ParameterSet<T>& parameters, const Affine& affine) const;
  ops::AttentionBias<T> bias(const ParameterSet<T>& parameters, const StepInput& step) const;
  ops::AttentionMask mask(const StepInput& step) const;
  ops::HstuAttentionOptions hstu_options(const StepInput& step, AttentionSaved<T>& saved) const;
  ops::FuxiAttentionOptions fuxi_options(const StepInput& step) const;
  ops::TargetAttentionOptions target_options(const StepInput& step) const;
  // From saved.normed to saved.attended; and from gradients of attended and, in scratch.dprojected,
  // of gates to those of norm(x) (scratch.dnormed).
  void attend(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
              AttentionSaved<T>& saved) const;
  void attend_backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                       AttentionSaved<T>& saved, Rows<const T> dattended,
                       AttentionScratch<T>& scratch) const;
  void attend_targets(const Context& ctx, const StepInput& step, AttentionSaved<T>& saved,
                      TargetSaved<T>& targets) const;
  void attend_all(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
                  AttentionSaved<T>& saved, TargetSaved<T>& targets) const;
  void attend_targets_backward(const Context& ctx, ParameterSet<T>& parameters,
                               const StepInput& step, AttentionSaved<T>& saved,
                               TargetSaved<T>& targets, AttentionScratch<T>& scratch) const;
  void attend_all_backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                           AttentionSaved<T>& saved, TargetSaved<T>& targets,
                           AttentionScratch<T>& scratch) const;
  // One group of heads' columns of a vector or a matrix.
  template <class V>
  View<V, 1> of_group(View<V, 1> vector, int group) const;
  template <class V>
  Rows<V> of_group(Rows<V> rows, int group) const;
  ops::GatedNormOptions<T> mix_options(const ParameterSet<T>& parameters,
                                       const ops::DropoutOptions& dropout, int group) const;
  ops::NormStatistics<Accum<T>> mix_statistics(AttentionSaved<T>& saved, std::int64_t rows,
                                               int group) const;
  // From attended rows and gates to mixed ones.
  void mix(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
           Rows<const T> attended, Rows<const T> gate, AttentionSaved<T>& saved, Rows<T> mixed,
           const ops::Fp8Rows<T>& mixed8 = {}) const;
  void mix_backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                    Rows<const T> attended, Rows<const T> gate, Rows<const T> dmixed,
                    AttentionSaved<T>& saved, Rows<T> dattended, Rows<T> dgate) const;
  double norm_length(const StepInput& step) const {
    return step.norm_length > 0 ? step.norm_length : options_.norm_length;
  }
  View<Accum<T>, 1> vector_gradient(ParameterSet<T>& parameters, int index) const {
    if (index < 0) return {};
    return parameters.gradient(index).template view<Accum<T>, 1>();
  }
  View<const Accum<T>, 1> vector_value(const ParameterSet<T>& parameters, int index) const {
    if (index < 0) return {};
    return parameters.value(index).template view<Accum<T>, 1>();
  }

  ModelOptions options_;
  int layer_;
  WeightMatrix<T> projection_;
  WeightMatrix<T> output_;
  int projection_bias_ = -1;
  int output_bias_ = -1;
  int position_ = -1;
  int time_ = -1;
  Affine input_norm_, attended_norm_;
  // Of the last layer, where only targets leave it: columns of all tokens [V | K] and of targets
  // [U | Q]. They hold gradients on their way, so that const backward writes there.
  struct Split {
    ColumnPart<T> all, own;
  };
  std::unique_ptr<Split> split_;
};

}  // namespace turbogr::model
