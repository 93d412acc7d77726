#include "turbogr/model/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/combine_input.h"

namespace turbogr::model {
namespace {

// A plan's memory grows by a tile a sequence: it is made for this many, or for sequences of this
// length.
constexpr std::int64_t kFewSequences = 1024;
constexpr std::int64_t kShortLength = 16;

}  // namespace

template <class T>
Model<T>::Model(const Context& ctx, const ModelOptions& options, const ModelMemory& memory)
    : options_((check_model_options(options), options)),
      memory_(memory),
      parameters_(ctx.device(), !memory.inference),
      attention_scratch_(options, memory.capacity, ctx.device()),
      gradient_(dtype_of<T>(), {memory.inference ? 0 : memory.capacity, options.width},
                ctx.device()),
      other_gradient_(dtype_of<T>(), gradient_.shape(), ctx.device()) {
  TGR_CHECK(memory.capacity > 0, "a model planned for ", memory.capacity,
            " tokens a step; give at least 1");
  const std::int64_t width = options_.width;
  const Device device = ctx.device();
  position_ = parameters_.add({.name = "position",
                               .shape = {options_.max_length, width},
                               .init = Init::kTruncatedNormal,
                               .scale = std::sqrt(1.0 / static_cast<double>(width)),
                               .counted = false});
  if constexpr (!std::is_same_v<T, Accum<T>>) {
    position_rounded_ = Tensor(dtype_of<T>(), {options_.max_length, width}, device);
  }
  if (options_.actions > 0) {
    actions_ = std::make_unique<ActionEmbedding<T>>(options_, memory.capacity, parameters_);
  }
  ops::AttentionShape planned = attention_shape(ctx);
  if (memory.sequences == 0) {
    planned.batch = std::min(planned.batch, std::max(kFewSequences, planned.batch / kShortLength));
  }
  const std::size_t kept_bytes = ops::attention_kept_bytes<T>(attention_kind(), planned);
  const bool fuxi = options_.kind == ModelKind::kFuxi;
  for (int layer = 0; layer < options_.layers; ++layer) {
    const int first = parameters_.size();
    AttentionBlock<T> attention(options_, layer, parameters_);
    auto feed_forward =
        fuxi ? std::make_unique<FeedForward<T>>(options_, layer, parameters_) : nullptr;
    layers_.push_back({std::move(attention), std::move(feed_forward), {first, parameters_.size()}});
    if (layer == 0 || !memory.inference) {
      inputs_.emplace_back(dtype_of<T>(), std::vector{memory.capacity, width}, device);
    }
    if (layer == 0 || !(memory.recompute || memory.inference)) {
      saved_.push_back(
          {AttentionSaved<T>(options_, memory.capacity, device, kept_bytes),
           fuxi ? std::make_unique<FeedForwardSaved<T>>(options_, memory.capacity, device)
                : nullptr,
           fuxi ? Tensor(dtype_of<T>(), {memory.capacity, width}, device) : Tensor()});
    }
  }
  inputs_.emplace_back(dtype_of<T>(), std::vector{memory.capacity, width}, device);
  if (fuxi) {
    feed_forward_scratch_ =
        std::make_unique<FeedForwardScratch<T>>(options_, memory.capacity, device);
  }
  const std::size_t plan_bytes = ops::attention_plan_bytes<T>(attention_kind(), planned);
  plan_memory_ = Tensor(DType::kU8, {static_cast<std::int64_t>(plan_bytes)}, device);
  refresh(ctx);
  ctx.workspace().reserve(workspace_bytes(ctx));
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
  for (Layer& layer : layers_) {
    layer.attention.refresh(ctx, parameters_);
    if (layer.feed_forward) layer.feed_forward->refresh(ctx, parameters_);
  }
}

template <class T>
std::vector<T*> Model<T>::rounded_parameters() {
  if (std::is_same_v<T, Accum<T>> || parameters_.device() != Device::kCuda) return {};
  std::vector<T*> rounded(static_cast<std::size_t>(parameters_.size()));
  rounded[static_cast<std::size_t>(position_)] = reinterpret_cast<T*>(position_rounded_.data());
  for (Layer& layer : layers_) {
    layer.attention.list_rounded(rounded);
    if (layer.feed_forward) layer.feed_forward->list_rounded(rounded);
  }
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
ops::AttentionKind Model<T>::attention_kind() const {
  return options_.kind == ModelKind::kHstu ? ops::AttentionKind::kHstu : ops::AttentionKind::kFuxi;
}

template <class T>
ops::AttentionShape Model<T>::attention_shape(const Context& ctx) const {
  return {.device = ctx.device(),
          .threads = ctx.threads(),
          .tokens = memory_.capacity,
          .batch = memory_.sequences > 0 ? memory_.sequences : memory_.capacity,
          .max_length = std::min(options_.max_length, memory_.capacity),
          .heads = options_.heads,
          .query_width = options_.dq,
          .value_width = options_.dv,
          .tables = options_.position_bias() || options_.time_bias(),
          .masks = options_.window > 0,
          .planned = true,
          .deterministic = memory_.deterministic,
          .position_length = options_.position_bias() ? options_.max_length : 0};
}

template <class T>
void Model<T>::check_step(const StepInput& step, Rows<const T> rows) const {
  TGR_CHECK(rows.rows <= memory_.capacity, "a step of ", rows.rows,
            " tokens in a model planned for ", memory_.capacity,
            "; raise the token budget or make the batch smaller");
  TGR_CHECK(memory_.sequences == 0 || step.batch() <= memory_.sequences, "a step of ", step.batch(),
            " sequences in a model planned for ", memory_.sequences,
            "; plan for more or make the batch smaller");
  TGR_CHECK(
      step.offsets.data != nullptr && step.num_tokens == rows.rows && rows.cols == options_.width,
      "model: item rows are [", rows.rows, ", ", rows.cols, "]; wanted [", step.num_tokens, ", ",
      options_.width, "]");
}

template <class T>
void Model<T>::forward_layer(const Context& ctx, const StepInput& step, std::size_t layer,
                             Rows<T> y) {
  Saved& saved = saved_[layer % saved_.size()];
  const Rows<const T> x = first_rows<T>(std::as_const(input_of(layer)), y.rows);
  if (!layers_[layer].feed_forward) {
    layers_[layer].attention.forward(ctx, parameters_, step, x, saved.attention, y);
    return;
  }
  const Rows<T> middle = first_rows<T>(saved.middle, y.rows);
  layers_[layer].attention.forward(ctx, parameters_, step, x, saved.attention, middle);
  layers_[layer].feed_forward->forward(ctx, parameters_, step, middle, *saved.feed_forward, y);
}

template <class T>
Rows<const T> Model<T>::forward(const Context& ctx, const StepInput& input, Rows<const T> rows) {
  check_step(input, rows);
  const std::int64_t n = rows.rows;
  ops::AttentionShape shape = attention_shape(ctx);
  shape.tokens = n;
  shape.batch = input.batch();
  shape.masks |= !input.num_prefix.empty() || !input.num_targets.empty();
  plan_ = ops::make_attention_plan<T>(ctx, attention_kind(),
                                      {input.offsets, input.key_times, input.query_times}, shape,
                                      plan_memory_);
  StepInput step = input;
  step.plan = &plan_;
  step.deterministic = memory_.deterministic;
  ops::combine_input<T>(
      ctx, {rows, step.offsets}, position_rows(),
      {.scale = std::sqrt(static_cast<double>(options_.width)),
       .extra = actions_ ? actions_->forward(ctx, parameters_, step) : Rows<const T>{},
       .dropout = step.dropout(options_.dropout, -1, 0)},
      first_rows<T>(input_of(0), n));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    forward_layer(ctx, step, layer, first_rows<T>(input_of(layer + 1), n));
  }
  return first_rows<T>(std::as_const(input_of(layers_.size())), n);
}

template <class T>
void Model<T>::backward(const Context& ctx, const StepInput& input, Rows<const T> dout,
                        Rows<T> drows, const std::function<void(std::int64_t layers)>& ready) {
  check_step(input, dout);
  StepInput step = input;
  step.plan = &plan_;
  step.deterministic = memory_.deterministic;
  const std::int64_t n = dout.rows;
  Rows<T> dy = first_rows<T>(gradient_, n);
  Rows<T> dx = first_rows<T>(other_gradient_, n);
  Rows<const T> incoming = dout;
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    // The output of a layer is the next one's input and stays as it was: only what is saved is made
    // again.
    if (memory_.recompute) forward_layer(ctx, step, layer, first_rows<T>(input_of(layer + 1), n));
    Saved& saved = saved_[layer % saved_.size()];
    const Rows<const T> x = first_rows<T>(std::as_const(input_of(layer)), n);
    if (layers_[layer].feed_forward) {
      layers_[layer].feed_forward->backward(ctx, parameters_, step, first_rows<T>(saved.middle, n),
                                            *saved.feed_forward, incoming, *feed_forward_scratch_,
                                            dx);
      std::swap(dx, dy);
      incoming = dy;
    }
    layers_[layer].attention.backward(ctx, parameters_, step, x, saved.attention, incoming,
                                      attention_scratch_, dx);
    std::swap(dx, dy);
    incoming = dy;
    if (ready) ready(static_cast<std::int64_t>(layers_.size() - layer));
  }
  ops::combine_input_backward<T>(
      ctx, {dy, step.offsets},
      {.scale = std::sqrt(static_cast<double>(options_.width)),
       .dropout = step.dropout(options_.dropout, -1, 0)},
      {.de = drows,
       .dp = parameters_.gradient(position_).template view<Accum<T>, 2>(),
       .dextra = actions_ ? actions_->gradient_rows(n) : Rows<T>{}});
  if (actions_) actions_->backward(ctx, parameters_, step);
}

template <class T>
std::size_t Model<T>::activation_bytes() const {
  std::size_t total = attention_scratch_.bytes() + gradient_.bytes() + other_gradient_.bytes() +
                      plan_memory_.bytes();
  if (feed_forward_scratch_) total += feed_forward_scratch_->bytes();
  if (actions_) total += actions_->bytes();
  for (const Saved& saved : saved_) {
    total += saved.attention.bytes() + saved.middle.bytes();
    if (saved.feed_forward) total += saved.feed_forward->bytes();
  }
  for (const Tensor& input : inputs_) total += input.bytes();
  return total;
}

template <class T>
std::size_t Model<T>::workspace_bytes(const Context& ctx) const {
  std::size_t most = actions_ ? actions_->workspace_bytes(ctx) : 0;
  for (const Layer& layer : layers_) {
    most = std::max(most, layer.attention.workspace_bytes(ctx, attention_shape(ctx)));
    if (layer.feed_forward) {
      most = std::max(most, layer.feed_forward->workspace_bytes(ctx, memory_.capacity));
    }
  }
  return most;
}

template class Model<double>;
template class Model<float>;
template class Model<bf16>;

}  // namespace turbogr::model
