#include "turbogr/model/layer_stack.h"

#include <algorithm>
#include <string>
#include <utility>

#include "turbogr/model/buffers.h"

namespace turbogr::model {
namespace {

// A plan's memory grows by a tile a sequence: it is made for this many, or for sequences of this
// length.
constexpr std::int64_t kFewSequences = 1024;
constexpr std::int64_t kShortLength = 16;

}  // namespace

template <class T>
LayerStack<T>::LayerStack(const Context& ctx, const ModelOptions& options,
                          const ModelMemory& memory, ParameterSet<T>& parameters)
    : options_(options),
      memory_(memory),
      attention_scratch_(options, memory.capacity, ctx.device()),
      gradient_(dtype_of<T>(), {memory.inference ? 0 : memory.capacity, options.width},
                ctx.device()),
      other_gradient_(dtype_of<T>(), gradient_.shape(), ctx.device()) {
  TGR_CHECK(memory.capacity > 0, "a model planned for ", memory.capacity,
            " tokens a step; give at least 1");
  const std::int64_t width = options_.width;
  const Device device = ctx.device();
  ops::AttentionShape planned = attention_shape(ctx);
  if (memory.sequences == 0) {
    planned.batch = std::min(planned.batch, std::max(kFewSequences, planned.batch / kShortLength));
  }
  std::size_t kept_bytes = ops::attention_kept_bytes<T>(attention_kind(), planned);
  if (!planned.tables) {
    kept_ = Tensor(DType::kU8, {static_cast<std::int64_t>(std::exchange(kept_bytes, 0))}, device);
  }
  const bool fuxi = options_.kind == ModelKind::kFuxi;
  for (int layer = 0; layer < options_.layers; ++layer) {
    const int first = parameters.size();
    AttentionBlock<T> attention(options_, layer, parameters);
    auto feed_forward =
        fuxi ? std::make_unique<FeedForward<T>>(options_, layer, parameters) : nullptr;
    layers_.push_back({std::move(attention), std::move(feed_forward), {first, parameters.size()}});
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
  if (memory.inference || memory.targets == 0) {
    inputs_.emplace_back(dtype_of<T>(), std::vector{memory.capacity, width}, device);
  }
  if (memory.targets > 0) {
    target_saved_ = std::make_unique<TargetSaved<T>>(options_, memory.targets, device);
    if (!fuxi) layers_.back().attention.split_projection();
  }
  if (fuxi) {
    feed_forward_scratch_ =
        std::make_unique<FeedForwardScratch<T>>(options_, memory.capacity, device);
  }
  if (memory.fp8) use_fp8(ctx, parameters);
  const std::size_t plan_bytes = ops::attention_plan_bytes<T>(attention_kind(), planned);
  plan_memory_ = Tensor(DType::kU8, {static_cast<std::int64_t>(plan_bytes)}, device);
}

template <class T>
void LayerStack<T>::use_fp8(const Context& ctx, const ParameterSet<T>& parameters) {
  ops::check_fp8(ctx);
  TGR_CHECK(!memory_.recompute && !memory_.inference && memory_.targets == 0,
            "fp8 products in a model that makes its layers anew, only goes forward or is of "
            "targets alone; plan one of the two");
  const ModelOptions& o = options_;
  const bool fuxi = o.kind == ModelKind::kFuxi;
  TGR_CHECK(ctx.device() == Device::kCpu ||
                (o.width % 16 == 0 && o.projection_width() % 16 == 0 && o.mixed_width() % 16 == 0 &&
                 (!fuxi || o.feed_forward % 16 == 0)),
            "fp8 products of matrices of width ", o.width, ", ", o.projection_width(), " and ",
            o.mixed_width(), fuxi ? " with a feed-forward of " : "",
            fuxi ? std::to_string(o.feed_forward) : "",
            "; on a GPU all must be multiples of 16: choose other widths, or no fp8");
  const std::int64_t widest = std::max({o.width, o.projection_width(), o.mixed_width(),
                                        fuxi ? 2 * o.feed_forward : std::int64_t{0}});
  const std::int64_t products = (fuxi ? 4 : 2) * o.layers;
  fp8_shared_ = std::make_unique<Fp8Shared<T>>(ctx.device(), memory_.capacity, widest, products);
  for (Layer& layer : layers_) {
    layer.attention.use_fp8(ctx, parameters, memory_.capacity, *fp8_shared_);
    if (fuxi) layer.feed_forward->use_fp8(ctx, parameters, memory_.capacity, *fp8_shared_);
  }
}

template <class T>
void LayerStack<T>::refresh(const Context& ctx, const ParameterSet<T>& parameters) {
  for (Layer& layer : layers_) {
    layer.attention.refresh(ctx, parameters);
    if (layer.feed_forward) layer.feed_forward->refresh(ctx, parameters);
  }
}

template <class T>
void LayerStack<T>::list_rounded(std::vector<T*>& rounded) {
  for (Layer& layer : layers_) {
    layer.attention.list_rounded(rounded);
    if (layer.feed_forward) layer.feed_forward->list_rounded(rounded);
  }
}

template <class T>
ops::AttentionKind LayerStack<T>::attention_kind() const {
  return options_.kind == ModelKind::kHstu ? ops::AttentionKind::kHstu : ops::AttentionKind::kFuxi;
}

template <class T>
ops::AttentionShape LayerStack<T>::attention_shape(const Context& ctx) const {
  return {.device = ctx.device(),
          .threads = ctx.threads(),
          .tokens = memory_.capacity,
          .batch = memory_.sequences > 0 ? memory_.sequences : memory_.capacity,
          .max_length = std::min(options_.max_length, memory_.capacity),
          .heads = options_.heads,
          .query_width = options_.dq,
          .value_width = options_.dv,
          .tables = options_.position_bias() || options_.time_bias(),
          .masks = options_.window > 0 || memory_.masks,
          .planned = true,
          .deterministic = memory_.deterministic,
          .position_length = options_.position_bias() ? options_.position_length() : 0};
}

template <class T>
void LayerStack<T>::check_size(const StepInput& step) const {
  TGR_CHECK(step.num_tokens <= memory_.capacity, "a step of ", step.num_tokens,
            " tokens in a model planned for ", memory_.capacity,
            "; raise the token budget or make the batch smaller");
  TGR_CHECK(memory_.sequences == 0 || step.batch() <= memory_.sequences, "a step of ", step.batch(),
            " sequences in a model planned for ", memory_.sequences,
            "; plan for more or make the batch smaller");
  TGR_CHECK(step.targets.shape[0] <= memory_.targets, "a step of ", step.targets.shape[0],
            " targets in a model planned for ", memory_.targets,
            "; plan for more or make the batch smaller");
}

template <class T>
StepInput LayerStack<T>::planned(const StepInput& step) {
  StepInput with_plan = step;
  with_plan.plan = &plan_;
  with_plan.kept = {kept_.data(), {kept_.size()}};
  with_plan.deterministic = memory_.deterministic;
  return with_plan;
}

template <class T>
Rows<T> LayerStack<T>::input(std::int64_t n) {
  return first_rows<T>(input_of(0), n);
}

template <class T>
Rows<const T> LayerStack<T>::input_of_layer(std::int64_t layer, std::int64_t n) const {
  return first_rows<T>(inputs_.at(input_place(static_cast<std::size_t>(layer))), n);
}

template <class T>
void LayerStack<T>::forward_layer(const Context& ctx, const ParameterSet<T>& parameters,
                                  const StepInput& step, std::size_t layer) {
  const std::int64_t n = step.num_tokens;
  Saved& saved = saved_[layer % saved_.size()];
  const Rows<const T> x = first_rows<T>(std::as_const(input_of(layer)), n);
  if (of_targets(step, layer)) {
    const Layer& last = layers_[layer];
    const Rows<T> middle =
        last.feed_forward ? first_rows<T>(saved.middle, step.targets.shape[0]) : target_rows_;
    last.attention.forward_targets(ctx, parameters, step, x, saved.attention, *target_saved_,
                                   middle);
    if (last.feed_forward) {
      last.feed_forward->forward(ctx, parameters, step.with_target_rows(), middle,
                                 *saved.feed_forward, target_rows_);
    }
    return;
  }
  const Rows<T> y = first_rows<T>(input_of(layer + 1), n);
  if (!layers_[layer].feed_forward) {
    layers_[layer].attention.forward(ctx, parameters, step, x, saved.attention, y);
    return;
  }
  const Rows<T> middle = first_rows<T>(saved.middle, n);
  layers_[layer].attention.forward(ctx, parameters, step, x, saved.attention, middle);
  layers_[layer].feed_forward->forward(ctx, parameters, step, middle, *saved.feed_forward, y);
}

template <class T>
Rows<const T> LayerStack<T>::forward(const Context& ctx, const ParameterSet<T>& parameters,
                                     const StepInput& input, Rows<T> target_rows) {
  target_rows_ = target_rows;
  ops::AttentionShape shape = attention_shape(ctx);
  shape.tokens = input.num_tokens;
  shape.batch = input.batch();
  shape.masks = options_.window > 0 || !input.num_prefix.empty() || !input.num_targets.empty();
  plan_ = ops::make_attention_plan<T>(ctx, attention_kind(),
                                      {input.offsets, input.key_times, input.query_times}, shape,
                                      plan_memory_);
  StepInput step = planned(input);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    forward_layer(ctx, parameters, step, layer);
    step.kept_ready = !step.kept.empty();
  }
  if (step.targets.data != nullptr) return target_rows_;
  return first_rows<T>(std::as_const(input_of(layers_.size())), step.num_tokens);
}

template <class T>
Rows<T> LayerStack<T>::backward(const Context& ctx, ParameterSet<T>& parameters,
                                const StepInput& input, Rows<const T> dout,
                                const std::function<void(std::int64_t layers)>& ready) {
  StepInput step = planned(input);
  step.kept_ready = !step.kept.empty();
  const std::int64_t n = step.num_tokens;
  Rows<T> dy = first_rows<T>(gradient_, n);
  Rows<T> dx = first_rows<T>(other_gradient_, n);
  Rows<const T> incoming = dout;
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    // The output of a layer is the next one's input and stays as it was: only what is saved is made
    // again.
    if (memory_.recompute) forward_layer(ctx, parameters, step, layer);
    Saved& saved = saved_[layer % saved_.size()];
    const Rows<const T> x = first_rows<T>(std::as_const(input_of(layer)), n);
    if (of_targets(step, layer)) {
      if (layers_[layer].feed_forward) {
        const std::int64_t m = step.targets.shape[0];
        const Rows<T> dmiddle = first_rows<T>(gradient_, m);
        layers_[layer].feed_forward->backward(ctx, parameters, step.with_target_rows(),
                                              first_rows<T>(saved.middle, m), *saved.feed_forward,
                                              incoming, *feed_forward_scratch_, dmiddle);
        incoming = dmiddle;
      }
      layers_[layer].attention.backward_targets(ctx, parameters, step, x, saved.attention,
                                                *target_saved_, incoming, attention_scratch_, dx);
      std::swap(dx, dy);
      incoming = dy;
      if (ready) ready(1);
      continue;
    }
    if (layers_[layer].feed_forward) {
      layers_[layer].feed_forward->backward(ctx, parameters, step, first_rows<T>(saved.middle, n),
                                            *saved.feed_forward, incoming, *feed_forward_scratch_,
                                            dx);
      std::swap(dx, dy);
      incoming = dy;
    }
    layers_[layer].attention.backward(ctx, parameters, step, x, saved.attention, incoming,
                                      attention_scratch_, dx);
    std::swap(dx, dy);
    incoming = dy;
    if (ready) ready(static_cast<std::int64_t>(layers_.size() - layer));
  }
  return dy;
}

template <class T>
std::size_t LayerStack<T>::activation_bytes() const {
  std::size_t total = attention_scratch_.bytes() + gradient_.bytes() + other_gradient_.bytes() +
                      plan_memory_.bytes() + kept_.bytes();
  if (feed_forward_scratch_) total += feed_forward_scratch_->bytes();
  if (fp8_shared_) total += fp8_shared_->bytes();
  for (const Layer& layer : layers_) {
    total += layer.attention.fp8_bytes();
    if (layer.feed_forward) total += layer.feed_forward->fp8_bytes();
  }
  if (target_saved_) total += target_saved_->bytes();
  for (const Saved& saved : saved_) {
    total += saved.attention.bytes() + saved.middle.bytes();
    if (saved.feed_forward) total += saved.feed_forward->bytes();
  }
  for (const Tensor& input : inputs_) total += input.bytes();
  return total;
}

template <class T>
std::size_t LayerStack<T>::workspace_bytes(const Context& ctx) const {
  std::size_t most = 0;
  for (const Layer& layer : layers_) {
    most = std::max(most, layer.attention.workspace_bytes(ctx, attention_shape(ctx)));
    if (layer.feed_forward) {
      most = std::max(most, layer.feed_forward->workspace_bytes(ctx, memory_.capacity));
    }
  }
  return most;
}

template class LayerStack<double>;
template class LayerStack<float>;
template class LayerStack<bf16>;

}  // namespace turbogr::model
