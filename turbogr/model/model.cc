#include "turbogr/model/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/combine_input.h"

namespace turbogr::model {

template <class T>
Model<T>::Model(const Context& ctx, const ModelOptions& options, const ModelMemory& memory)
    : options_((check_model_options(options), options)),
      parameters_(ctx.device(), !memory.inference),
      position_(add_position()),
      actions_(options.actions > 0
                   ? std::make_unique<ActionEmbedding<T>>(options, memory.capacity, parameters_)
                   : nullptr),
      stack_(ctx, options, memory, parameters_) {
  if constexpr (!std::is_same_v<T, Accum<T>>) {
    position_rounded_ = Tensor(dtype_of<T>(), {options_.max_length, options_.width}, ctx.device());
  }
  refresh(ctx);
  ctx.workspace().reserve(workspace_bytes(ctx));
}

template <class T>
int Model<T>::add_position() {
  return parameters_.add({.name = "position",
                          .shape = {options_.max_length, options_.width},
                          .init = Init::kTruncatedNormal,
                          .scale = std::sqrt(1.0 / static_cast<double>(options_.width)),
                          .counted = false});
}

template <class T>
void Model<T>::initialise(const Context& ctx, std::uint64_t seed) {
  parameters_.initialise(ctx, seed);
  refresh(ctx);
}

template <class T>
void Model<T>::refresh(const Context& ctx) {
  if constexpr (!std::is_same_v<T, Accum<T>>) {
    const auto* master =
        reinterpret_cast<const Accum<T>*>(std::as_const(parameters_).value(position_).data());
    auto* rounded = reinterpret_cast<T*>(position_rounded_.data());
    const std::int64_t count = position_rounded_.size();
    ops::convert_values<T, Accum<T>>(ctx, {master, {count}}, {rounded, {count}});
  }
  stack_.refresh(ctx, parameters_);
}

template <class T>
std::vector<T*> Model<T>::rounded_parameters() {
  if (std::is_same_v<T, Accum<T>> || parameters_.device() != Device::kCuda) return {};
  std::vector<T*> rounded(static_cast<std::size_t>(parameters_.size()));
  rounded[static_cast<std::size_t>(position_)] = reinterpret_cast<T*>(position_rounded_.data());
  stack_.list_rounded(rounded);
  return rounded;
}

template <class T>
View<const T, 2> Model<T>::position_rows() const {
  if constexpr (std::is_same_v<T, Accum<T>>) {
    return parameters_.value(position_).template view<T, 2>();
  } else {
    return position_rounded_.template view<T, 2>();
  }
}

template <class T>
void Model<T>::check_step(const StepInput& step, Rows<const T> rows) const {
  TGR_CHECK(
      step.offsets.data != nullptr && step.num_tokens == rows.rows && rows.cols == options_.width,
      "model: item rows are [", rows.rows, ", ", rows.cols, "]; wanted [", step.num_tokens, ", ",
      options_.width, "]");
  stack_.check_size(step);
}

template <class T>
Rows<const T> Model<T>::forward(const Context& ctx, const StepInput& step, Rows<const T> rows) {
  check_step(step, rows);
  ops::combine_input<T>(
      ctx, {rows, step.offsets}, position_rows(),
      {.scale = std::sqrt(static_cast<double>(options_.width)),
       .extra = actions_ ? actions_->forward(ctx, parameters_, step) : Rows<const T>{},
       .dropout = step.dropout(options_.dropout, -1, 0)},
      stack_.input(rows.rows));
  return stack_.forward(ctx, parameters_, step);
}

template <class T>
void Model<T>::backward(const Context& ctx, const StepInput& step, Rows<const T> dout,
                        Rows<T> drows, const std::function<void(std::int64_t layers)>& ready) {
  check_step(step, dout);
  const Rows<const T> dinput = stack_.backward(ctx, parameters_, step, dout, ready);
  ops::combine_input_backward<T>(
      ctx, {dinput, step.offsets},
      {.scale = std::sqrt(static_cast<double>(options_.width)),
       .dropout = step.dropout(options_.dropout, -1, 0)},
      {.de = drows,
       .dp = parameters_.gradient(position_).template view<Accum<T>, 2>(),
       .dextra = actions_ ? actions_->gradient_rows(dout.rows) : Rows<T>{}});
  if (actions_) actions_->backward(ctx, parameters_, step);
}

template <class T>
std::size_t Model<T>::activation_bytes() const {
  return stack_.activation_bytes() + (actions_ ? actions_->bytes() : 0);
}

template <class T>
std::size_t Model<T>::workspace_bytes(const Context& ctx) const {
  return std::max(stack_.workspace_bytes(ctx), actions_ ? actions_->workspace_bytes(ctx) : 0);
}

template class Model<double>;
template class Model<float>;
template class Model<bf16>;

}  // namespace turbogr::model
