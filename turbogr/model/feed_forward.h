// FuXi's second half of a layer: y = x + (SiLU(r W_1) * (r W_3)) W_2 with r = dropout(RMSNorm(x)).
// W_1 and W_3 stand side by side in one matrix, so that one product makes both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/model/model_options.h"
#include "turbogr/model/parameters.h"
#include "turbogr/model/step_input.h"
#include "turbogr/model/weight_matrix.h"

namespace turbogr::model {

template <class T>
struct FeedForwardSaved {
  FeedForwardSaved(const ModelOptions& options, std::int64_t capacity,
                   Device device = Device::kCpu);

  Tensor normed;  // [N, D], r
  Tensor gates;   // [N, 2 F], r [W_1 | W_3]
  Tensor hidden;  // [N, F]
  Tensor rstd;    // [N]

  std::size_t bytes() const;
};

template <class T>
struct FeedForwardScratch {
  FeedForwardScratch(const ModelOptions& options, std::int64_t capacity,
                     Device device = Device::kCpu);

  Tensor dhidden, dgates, dnormed;

  std::size_t bytes() const;
};

template <class T>
class FeedForward {
 public:
  FeedForward(const ModelOptions& options, int layer, ParameterSet<T>& parameters);

  // Before the first refresh: see WeightMatrix.
  void use_fp8(const Context& ctx, const ParameterSet<T>& parameters, std::int64_t capacity,
               Fp8Shared<T>& shared);
  std::size_t fp8_bytes() const { return gates_.fp8_bytes() + output_.fp8_bytes(); }
  void refresh(const Context& ctx, const ParameterSet<T>& parameters);
  void list_rounded(std::vector<T*>& rounded);  // see Model
  // x, y [N, D]; y must not be x.
  void forward(const Context& ctx, const ParameterSet<T>& parameters, const StepInput& step,
               Rows<const T> x, FeedForwardSaved<T>& saved, Rows<T> y) const;
  // Overwrites dx, which must not be dy; adds to the parameters' gradients.
  void backward(const Context& ctx, ParameterSet<T>& parameters, const StepInput& step,
                Rows<const T> x, const FeedForwardSaved<T>& saved, Rows<const T> dy,
                FeedForwardScratch<T>& scratch, Rows<T> dx) const;
  std::size_t workspace_bytes(const Context& ctx, std::int64_t capacity) const;

 private:
  ModelOptions options_;
  int layer_;
  WeightMatrix<T> gates_;
  WeightMatrix<T> output_;
  int norm_weight_ = -1;
};

}  // namespace turbogr::model
