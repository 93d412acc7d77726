// Two linear layers with an activation that norms itself between them, as ranking models use for
// everything around their attention:
//
//   hidden = x W_1 + b_1
//   linear = swish_norm(hidden) W_2 + b_2
//   y      = LayerNorm(linear), or linear as it is
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/weight_matrix.h"
#include "turbogr/ops/dense/norm.h"

namespace turbogr::model {

struct MlpOptions {
  std::string name;  // of its parameters: name.input, name.output, ...
  std::int64_t inputs = 0;
  std::int64_t hidden = 0;
  std::int64_t outputs = 0;
  bool norm = true;            // of the result
  bool uniform_start = false;  // Xavier's uniform, else his normal
  std::int64_t capacity = 0;   // rows of the largest step
  bool inference = false;      // forward alone
};

template <class T>
class Mlp {
 public:
  Mlp(const Context& ctx, const MlpOptions& options, ParameterSet<T>& parameters);

  void refresh(const Context& ctx, const ParameterSet<T>& parameters);
  // x [N, inputs], y [N, outputs]; y must not be x.
  void forward(const Context& ctx, const ParameterSet<T>& parameters, Rows<const T> x, Rows<T> y);
  // Of the last forward with the same x. Overwrites dx, which must not be dy; adds to the
  // parameters' gradients.
  void backward(const Context& ctx, ParameterSet<T>& parameters, Rows<const T> x, Rows<const T> dy,
                Rows<T> dx);

  std::size_t workspace_bytes(const Context& ctx) const;
  std::size_t bytes() const;

 private:
  struct Affine {  // indices of a norm's weight and bias
    int weight, bias;
  };
  int add_vector(const char* part, std::int64_t size, Init init, ParameterSet<T>& parameters) const;
  ParameterSpec matrix(const char* part, std::int64_t inputs, std::int64_t outputs) const;
  ops::NormOptions<T> norm_options(const ParameterSet<T>& parameters, const Affine& affine) const;

  MlpOptions options_;
  WeightMatrix<T> input_;
  int input_bias_;
  Affine swish_;
  WeightMatrix<T> output_;
  int output_bias_;
  Affine norm_ = {-1, -1};
  Tensor hidden_, activated_;       // [N, hidden]
  Tensor linear_;                   // [N, outputs], before the norm
  Tensor swish_mean_, swish_rstd_;  // [N]
  Tensor norm_mean_, norm_rstd_;    // [N]
  Tensor dhidden_, dlinear_;        // as what they are gradients of
};

}  // namespace turbogr::model
