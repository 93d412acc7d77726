// The dense parameters of a model: names, shapes, how they start, which of them decay. Each has a
// master copy and a gradient in Accum<T> (f32 when T is bf16); layers keep what they derive from
// it.
//
//   ParameterSet<bf16> set(ctx.device());
//   const int w = set.add({.name = "layer0.w", .shape = {64, 256}, .init = Init::kNormal, .scale =
//   0.02}); set.initialise(ctx, seed);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/tensor.h"

namespace turbogr::model {

enum class Init : std::uint8_t { kZero, kOne, kNormal, kTruncatedNormal, kUniform };

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  Init init = Init::kZero;
  double scale = 1;     // standard deviation of the normal ones; truncated at two of them
  bool decay = false;   // whether weight decay applies: matrices, not biases, norms and tables
  bool counted = true;  // in the published parameter counts, which leave the position embedding out
};

template <class T>
class ParameterSet {
 public:
  // Without gradients: of a model that only runs forward.
  explicit ParameterSet(Device device = Device::kCpu, bool gradients = true)
      : device_(device), with_gradients_(gradients) {}

  int add(ParameterSpec spec);  // returns its index

  // Every element a function of (seed, name, index): the same whatever else the model holds, and
  // on every device.
  void initialise(const Context& ctx, std::uint64_t seed);
  void zero_gradients(const Context& ctx);

  Device device() const { return device_; }

  int size() const { return static_cast<int>(specs_.size()); }
  const ParameterSpec& spec(int index) const { return specs_.at(static_cast<std::size_t>(index)); }
  Tensor& value(int index) { return values_.at(static_cast<std::size_t>(index)); }
  const Tensor& value(int index) const { return values_.at(static_cast<std::size_t>(index)); }
  Tensor& gradient(int index) { return gradients_.at(static_cast<std::size_t>(index)); }
  const Tensor& gradient(int index) const { return gradients_.at(static_cast<std::size_t>(index)); }
  std::int64_t count() const;  // of the weights that published counts include

 private:
  Device device_;
  bool with_gradients_;
  std::vector<ParameterSpec> specs_;
  std::vector<Tensor> values_;
  std::vector<Tensor> gradients_;
};

// Xavier's uniform bound, and his normal's standard deviation, for a matrix of these sizes.
double xavier_bound(std::int64_t inputs, std::int64_t outputs);
double xavier_deviation(std::int64_t inputs, std::int64_t outputs);

}  // namespace turbogr::model
