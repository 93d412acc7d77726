#include "turbogr/model/ranking_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/dense/row_arithmetic.h"
#include "turbogr/ops/rows/action_bits.h"
#include "turbogr/ops/rows/embedding.h"

namespace turbogr::model {
namespace {

// Up to so many targets a sequence, attention of theirs alone is cheaper than the kernels for all,
// which have a processor's vectors or a GPU's tensor cores.
std::int64_t few_targets(Device device) { return device == Device::kCpu ? 16 : 64; }

// Half the width of a uniform start of a table that is looked up by place.
double table_bound(std::int64_t rows) { return std::sqrt(1.0 / static_cast<double>(rows)); }

// Steps of sequences with one target each have none but the causal mask.
ModelMemory layer_memory(const RankingOptions& options, const RankingMemory& memory) {
  ModelMemory layers = memory.layers;
  layers.masks = options.full_prefix || memory.most_targets != 1;
  layers.targets = memory.targets;
  return layers;
}

// [B, c D] as [B c, D].
template <class T>
Rows<T> a_row_each(Rows<T> wide, std::int64_t width) {
  return {wide.data, wide.rows * wide.cols / width, width, width};
}

}  // namespace

double batch_norm_length(const ops::EventSequences& sequences) {
  std::int64_t history = 0;
  std::int64_t targets = 0;
  for (std::int64_t b = 0; b < sequences.batch(); ++b) {
    const ops::EventSequence at = ops::event_sequence(sequences, b);
    history = std::max(history, at.history);
    targets = std::max(targets, at.targets);
  }
  return static_cast<double>(std::max<std::int64_t>(history + targets + sequences.num_prefix, 1));
}

void fill_token_times(const ops::EventSequences& sequences, View<std::int64_t, 1> keys,
                      View<std::int64_t, 1> queries) {
  for (std::int64_t b = 0; b < sequences.batch(); ++b) {
    const ops::EventSequence at = ops::event_sequence(sequences, b);
    const auto time = [&](std::int64_t event) {
      return at.events() == 0 ? 0 : sequences.times(at.event + event);
    };
    for (std::int64_t k = 0; k < sequences.num_prefix; ++k) {
      keys(at.token + k) = queries(at.token + k) = time(0);
    }
    for (std::int64_t i = 0; i < at.events(); ++i) {
      const std::int64_t token = at.token + sequences.num_prefix + i;
      const bool last_known = i >= at.history || i + 1 == at.events();
      keys(token) = time(i);
      queries(token) = time(last_known ? i : i + 1);
    }
  }
}

void check_lengths(const ops::EventSequences& sequences, std::int64_t max_length) {
  for (std::int64_t b = 0; b < sequences.batch(); ++b) {
    const std::int64_t length = sequences.offsets(b + 1) - sequences.offsets(b);
    TGR_CHECK(length <= max_length, "ranking model: sequence ", b, " has ", length,
              " tokens in a model of max_length ", max_length,
              "; cut its history or raise max_length");
  }
}

template <class T>
RankingModel<T>::RankingModel(const Context& ctx, const RankingOptions& options,
                              const RankingMemory& memory)
    : options_((check_ranking_options(options), options)),
      memory_(memory),
      parameters_(ctx.device(), !memory.layers.inference),
      prefix_(add_prefix()),
      content_(ctx, token_mlp("content", options.embedding), parameters_),
      extra_(add_extra(ctx)),
      action_table_(add_table("action_table", {options.actions, RankingOptions::kActionWidth},
                              Init::kNormal, options.action_scale)),
      action_target_(add_table("action_target", {options.action_width()}, Init::kNormal,
                               options.action_scale)),
      action_(ctx, token_mlp("action", options.action_width()), parameters_),
      position_(add_table("position", {options.positions, options.width}, Init::kUniform,
                          table_bound(options.positions))),
      time_(add_table("time", {options.time_buckets + 1, options.width}, Init::kUniform,
                      table_bound(options.time_buckets))),
      layers_(ctx, layer_options(options), layer_memory(options, memory), parameters_),
      post_(ctx,
            {.kind = options.post,
             .width = options.width,
             .targets = memory.targets,
             .inference = memory.layers.inference},
            parameters_),
      tower_(ctx,
             target_mlp("tower", options.item_features * options.embedding, options.width, true),
             parameters_),
      head_(ctx, target_mlp("head", options.width, options.tasks, false), parameters_) {
  TGR_CHECK(memory.layers.sequences > 0 && memory.targets > 0, "a ranking model planned for ",
            memory.layers.sequences, " sequences and ", memory.targets,
            " targets a step; give at least 1 of both");
  const auto rows = [&](std::int64_t count, std::int64_t width) {
    return Tensor(dtype_of<T>(), {count, width}, ctx.device());
  };
  const auto numbers = [&](DType dtype, std::int64_t count) {
    return Tensor(dtype, {count}, ctx.device());
  };
  const std::int64_t batch = memory.layers.sequences;
  const std::int64_t tokens = memory.layers.capacity;
  const std::int64_t width = options_.width;
  const std::int64_t items = options_.item_features * options_.embedding;
  prefix_counts_ = numbers(DType::kI64, batch);
  ops::fill<std::int64_t>(ctx, options_.prefix, prefix_counts_.view<std::int64_t, 1>());
  prefix_tokens_ = rows(batch, options_.prefix * width);
  event_tokens_ = rows(tokens, width);
  other_tokens_ = rows(tokens, width);
  actions_ = rows(tokens, options_.action_width());
  target_tokens_ = numbers(DType::kI64, memory.targets);
  target_events_ = numbers(DType::kI64, memory.targets);
  target_times_ = numbers(DType::kI64, memory.targets);
  target_keys_ = numbers(DType::kI64, memory.targets);
  target_starts_ = numbers(DType::kI64, batch + 1);
  target_items_ = rows(memory.targets, items);
  item_ = rows(memory.targets, width);
  product_ = rows(memory.targets, width);
  logits_ = rows(memory.targets, options_.tasks);
  if (options_.bases) bases_ = rows(memory.targets, options_.tasks);
  if (!memory.layers.inference) {
    dprefix_tokens_ = rows(batch, options_.prefix * width);
    devent_tokens_ = rows(tokens, width);
    dactions_ = rows(tokens, options_.action_width());
    dproduct_ = rows(memory.targets, width);
    duser_ = rows(memory.targets, width);
    ditem_ = rows(memory.targets, width);
    dtarget_items_ = rows(memory.targets, items);
  }
  refresh(ctx);
  ctx.workspace().reserve(workspace_bytes(ctx));
}

template <class T>
int RankingModel<T>::add_table(const char* name, const std::vector<std::int64_t>& shape, Init init,
                               double scale) {
  return parameters_.add({.name = name, .shape = shape, .init = init, .scale = scale});
}

template <class T>
std::vector<typename RankingModel<T>::PrefixFeature> RankingModel<T>::add_prefix() {
  std::vector<PrefixFeature> features;
  for (std::int64_t k = 0; k < options_.prefix; ++k) {
    const std::string name = "prefix." + std::to_string(k);
    WeightMatrix<T> weight(parameters_,
                           {.name = name + ".weight",
                            .shape = {options_.embedding, options_.width},
                            .init = Init::kNormal,
                            .scale = xavier_deviation(options_.embedding, options_.width),
                            .decay = true});
    const int bias = parameters_.add({.name = name + ".bias", .shape = {options_.width}});
    features.push_back({std::move(weight), bias});
  }
  return features;
}

template <class T>
std::optional<Mlp<T>> RankingModel<T>::add_extra(const Context& ctx) {
  if (options_.item_features == 1) return std::nullopt;
  return Mlp<T>(ctx, token_mlp("extra", (options_.item_features - 1) * options_.embedding),
                parameters_);
}

template <class T>
MlpOptions RankingModel<T>::token_mlp(const char* name, std::int64_t inputs) const {
  return {.name = name,
          .inputs = inputs,
          .hidden = options_.hidden,
          .outputs = options_.width,
          .capacity = memory_.layers.capacity,
          .inference = memory_.layers.inference};
}

template <class T>
MlpOptions RankingModel<T>::target_mlp(const char* name, std::int64_t inputs, std::int64_t outputs,
                                       bool norm) const {
  return {.name = name,
          .inputs = inputs,
          .hidden = options_.head_hidden,
          .outputs = outputs,
          .norm = norm,
          .uniform_start = true,
          .capacity = memory_.targets,
          .inference = memory_.layers.inference};
}

template <class T>
void RankingModel<T>::initialise(const Context& ctx, std::uint64_t seed) {
  parameters_.initialise(ctx, seed);
  refresh(ctx);
}

template <class T>
void RankingModel<T>::refresh(const Context& ctx) {
  for (PrefixFeature& feature : prefix_) feature.weight.refresh(ctx, parameters_);
  content_.refresh(ctx, parameters_);
  if (extra_) extra_->refresh(ctx, parameters_);
  action_.refresh(ctx, parameters_);
  layers_.refresh(ctx, parameters_);
  post_.refresh(ctx, parameters_);
  tower_.refresh(ctx, parameters_);
  head_.refresh(ctx, parameters_);
}

template <class T>
void RankingModel<T>::check_step(const RankingStep& step, const RankingRows<const T>& rows) const {
  const ops::EventSequences& s = step.sequences;
  TGR_CHECK(s.offsets.data != nullptr && s.num_prefix == options_.prefix,
            "ranking model: sequences with ", s.num_prefix, " prefix tokens for a model of ",
            options_.prefix);
  layers_.check_size(layer_step(step));
  if (parameters_.device() == Device::kCpu) check_lengths(s, options_.max_length);
  const std::int64_t bases = options_.bases ? step.num_targets * options_.tasks : 0;
  TGR_CHECK(step.bases.shape[0] == bases, "ranking model: ", step.bases.shape[0],
            " numbers that logits start from; wanted ", bases);
  const std::int64_t prefix = options_.prefix * options_.embedding;
  const std::int64_t items = options_.item_features * options_.embedding;
  TGR_CHECK(rows.items.rows == s.num_events() && rows.items.cols == items,
            "ranking model: item rows are [", rows.items.rows, ", ", rows.items.cols, "]; wanted [",
            s.num_events(), ", ", items, "]");
  TGR_CHECK(prefix == 0 || (rows.prefix.rows == s.batch() && rows.prefix.cols == prefix),
            "ranking model: prefix rows are [", rows.prefix.rows, ", ", rows.prefix.cols,
            "]; wanted [", s.batch(), ", ", prefix, "]");
}

template <class T>
StepInput RankingModel<T>::layer_step(const RankingStep& step) const {
  StepInput input;
  input.offsets = step.sequences.offsets;
  input.num_tokens = step.sequences.num_tokens();
  input.row_keys = step.row_keys;
  if (options_.full_prefix) {
    input.num_prefix = first_values<std::int64_t>(prefix_counts_, step.sequences.batch());
  }
  // A target alone in its sequence is its last token, which sees all of it anyway.
  const bool causal = !options_.full_prefix && step.most_targets == 1;
  if (!causal) input.num_targets = step.sequences.num_targets;
  const ModelOptions layers = layer_options(options_);
  input.targets_together = !causal && layers.position_bias();
  if (layers.time_bias()) {
    input.key_times = step.key_times;
    input.query_times = step.query_times;
  }
  input.targets = first_values<std::int64_t>(target_tokens_, step.num_targets);
  input.target_keys = {reinterpret_cast<const std::uint64_t*>(target_keys_.data()),
                       {step.num_targets}};
  input.target_starts = first_values<std::int64_t>(target_starts_, step.sequences.batch() + 1);
  // FuXi's attention is that of all tokens: its three maps have no kernels for targets alone.
  input.few_targets = options_.kind == ModelKind::kHstu && step.most_targets > 0 &&
                      step.most_targets <= few_targets(parameters_.device());
  input.training = step.training;
  input.norm_length = step.norm_length;
  input.seed = step.seed;
  input.step = step.step;
  return input;
}

template <class T>
ops::EventInputOptions RankingModel<T>::input_options(const StepInput& step) const {
  return {.scale = std::sqrt(static_cast<double>(options_.width)),
          .buckets = options_.buckets,
          .dropout = step.dropout(options_.input_dropout, -1, 0)};
}

template <class T>
ops::EventTargets RankingModel<T>::targets(const RankingStep& step) {
  const std::int64_t count = step.num_targets;
  return {first_values<std::int64_t>(target_tokens_, count),
          first_values<std::int64_t>(target_events_, count),
          first_values<std::int64_t>(target_times_, count),
          {reinterpret_cast<std::uint64_t*>(target_keys_.data()), {count}},
          first_values<std::int64_t>(target_starts_, step.sequences.batch() + 1)};
}

template <class T>
View<Accum<T>, 1> RankingModel<T>::vector_gradient(int index) {
  return parameters_.gradient(index).template view<Accum<T>, 1>();
}

template <class T>
Rows<const T> RankingModel<T>::target_rows(std::int64_t count) const {
  return post_.input(count);
}

template <class T>
Rows<const T> RankingModel<T>::user_rows(std::int64_t count) const {
  return post_.result(count);
}

template <class T>
Rows<const T> RankingModel<T>::item_rows(std::int64_t count) const {
  return first_rows<T>(item_, count);
}

template <class T>
Rows<const T> RankingModel<T>::forward(const Context& ctx, const RankingStep& step,
                                       const RankingRows<const T>& rows) {
  using A = Accum<T>;
  check_step(step, rows);
  const ops::EventSequences& sequences = step.sequences;
  const std::int64_t width = options_.width;
  const std::int64_t embedding = options_.embedding;
  const std::int64_t num_events = sequences.num_events();
  const std::int64_t m = step.num_targets;
  const StepInput input = layer_step(step);

  // Tokens.
  const Rows<T> prefix = first_rows<T>(prefix_tokens_, sequences.batch());
  for (std::int64_t k = 0; k < options_.prefix; ++k) {
    const PrefixFeature& feature = prefix_[static_cast<std::size_t>(k)];
    ops::linear<T>(ctx, rows.prefix.columns(k * embedding, embedding), feature.weight.packed(),
                   {.bias = parameters_.value(feature.bias).template view<A, 1>()},
                   prefix.columns(k * width, width));
  }
  const Rows<T> events = first_rows<T>(event_tokens_, num_events);
  const Rows<T> other = first_rows<T>(other_tokens_, num_events);
  content_.forward(ctx, parameters_, rows.items.columns(0, embedding), events);
  if (extra_) {
    extra_->forward(ctx, parameters_, rows.items.columns(embedding, rows.items.cols - embedding),
                    other);
    ops::add_rows<T>(ctx, other, events);
  }
  const Rows<T> actions = first_rows<T>(actions_, num_events);
  ops::action_bits<T>(ctx, sequences,
                      {std::as_const(parameters_).value(action_table_).template view<A, 2>(),
                       std::as_const(parameters_).value(action_target_).template view<A, 1>()},
                      step.actions, actions);
  action_.forward(ctx, parameters_, actions, other);
  ops::add_rows<T>(ctx, other, events);

  // Layers.
  ops::event_input<T>(ctx, sequences, {a_row_each<const T>(prefix, width), events},
                      {std::as_const(parameters_).value(position_).template view<A, 2>(),
                       std::as_const(parameters_).value(time_).template view<A, 2>()},
                      input_options(input), layers_.input(input.num_tokens));
  const ops::EventTargets at = targets(step);
  ops::find_targets(ctx, sequences, step.row_keys, at);
  layers_.forward(ctx, parameters_, input, post_.input(m));

  // Targets.
  const Rows<const T> user = post_.forward(ctx, parameters_, at.times);
  const Rows<T> target_items = first_rows<T>(target_items_, m);
  const Rows<T> item = first_rows<T>(item_, m);
  ops::gather_rows<T, T, std::int64_t>(ctx, rows.items, at.events, target_items);
  tower_.forward(ctx, parameters_, target_items, item);
  const Rows<T> product = first_rows<T>(product_, m);
  ops::multiply_rows<T>(ctx, user, item, product);
  const Rows<T> logits = first_rows<T>(logits_, m);
  head_.forward(ctx, parameters_, product, logits);
  if (options_.bases) {
    const Rows<T> bases = first_rows<T>(bases_, m);
    ops::convert_values<T, float>(ctx, step.bases, {bases.data, {m * options_.tasks}});
    ops::add_rows<T>(ctx, bases, logits);
  }
  return logits;
}

template <class T>
void RankingModel<T>::backward(const Context& ctx, const RankingStep& step,
                               const RankingRows<const T>& rows, Rows<const T> dlogits,
                               const RankingRows<T>& drows,
                               const std::function<void(std::int64_t layers)>& ready) {
  using A = Accum<T>;
  check_step(step, rows);
  check_step(step, {drows.prefix, drows.items});
  const ops::EventSequences& sequences = step.sequences;
  const std::int64_t width = options_.width;
  const std::int64_t embedding = options_.embedding;
  const std::int64_t num_events = sequences.num_events();
  const std::int64_t m = step.num_targets;
  const StepInput input = layer_step(step);
  const ops::EventTargets at = targets(step);

  // Targets.
  const Rows<T> dproduct = first_rows<T>(dproduct_, m);
  const Rows<T> duser = first_rows<T>(duser_, m);
  const Rows<T> ditem = first_rows<T>(ditem_, m);
  head_.backward(ctx, parameters_, first_rows<T>(std::as_const(product_), m), dlogits, dproduct);
  ops::multiply_rows_backward<T>(ctx, user_rows(m), item_rows(m), dproduct, duser, ditem);
  const Rows<T> dtarget_items = first_rows<T>(dtarget_items_, m);
  tower_.backward(ctx, parameters_, first_rows<T>(std::as_const(target_items_), m), ditem,
                  dtarget_items);
  const Rows<const T> dtargets = post_.backward(ctx, parameters_, duser);

  // Layers.
  const Rows<const T> dinput = layers_.backward(ctx, parameters_, input, dtargets, ready);
  const Rows<T> dprefix = first_rows<T>(dprefix_tokens_, sequences.batch());
  const Rows<T> devents = first_rows<T>(devent_tokens_, num_events);
  ops::event_input_backward<T>(ctx, sequences, dinput, input_options(input),
                               {a_row_each(dprefix, width), devents},
                               {parameters_.gradient(position_).template view<A, 2>(),
                                parameters_.gradient(time_).template view<A, 2>()});

  // Tokens.
  const Rows<T> dactions = first_rows<T>(dactions_, num_events);
  action_.backward(ctx, parameters_, first_rows<T>(std::as_const(actions_), num_events), devents,
                   dactions);
  ops::action_bits_backward<T>(ctx, sequences, step.actions, dactions,
                               {parameters_.gradient(action_table_).template view<A, 2>(),
                                parameters_.gradient(action_target_).template view<A, 1>()});
  content_.backward(ctx, parameters_, rows.items.columns(0, embedding), devents,
                    drows.items.columns(0, embedding));
  if (extra_) {
    const std::int64_t rest = rows.items.cols - embedding;
    extra_->backward(ctx, parameters_, rows.items.columns(embedding, rest), devents,
                     drows.items.columns(embedding, rest));
  }
  ops::add_rows_at<T>(ctx, dtarget_items, at.events, drows.items);
  for (std::int64_t k = 0; k < options_.prefix; ++k) {
    const PrefixFeature& feature = prefix_[static_cast<std::size_t>(k)];
    ops::linear_backward<T>(ctx, rows.prefix.columns(k * embedding, embedding),
                            feature.weight.packed(), dprefix.columns(k * width, width), {},
                            {.dx = drows.prefix.columns(k * embedding, embedding),
                             .dw = feature.weight.gradient(parameters_),
                             .db = vector_gradient(feature.bias)});
  }
}

template <class T>
std::size_t RankingModel<T>::activation_bytes() const {
  std::size_t total = layers_.activation_bytes() + content_.bytes() + action_.bytes() +
                      post_.bytes() + tower_.bytes() + head_.bytes() +
                      (extra_ ? extra_->bytes() : 0);
  for (const Tensor* tensor :
       {&prefix_counts_,  &prefix_tokens_, &event_tokens_, &other_tokens_, &actions_,
        &target_tokens_,  &target_events_, &target_times_, &target_keys_,  &target_starts_,
        &target_items_,   &item_,          &product_,      &logits_,       &bases_,
        &dprefix_tokens_, &devent_tokens_, &dactions_,     &dproduct_,     &duser_,
        &ditem_,          &dtarget_items_}) {
    total += tensor->bytes();
  }
  return total;
}

template <class T>
std::size_t RankingModel<T>::workspace_bytes(const Context& ctx) const {
  std::size_t most = std::max(
      {layers_.workspace_bytes(ctx), content_.workspace_bytes(ctx), action_.workspace_bytes(ctx),
       post_.workspace_bytes(ctx), tower_.workspace_bytes(ctx), head_.workspace_bytes(ctx),
       ops::event_input_workspace_bytes<T>(ctx, memory_.layers.capacity, options_.width),
       ops::action_bits_workspace_bytes<T>(ctx, options_.action_width())});
  if (extra_) most = std::max(most, extra_->workspace_bytes(ctx));
  const auto product = [&](const WeightMatrix<T>& weight, std::int64_t rows) {
    return std::max(ops::linear_workspace_bytes<T>(ctx, weight.packed()),
                    ops::linear_backward_workspace_bytes<T>(ctx, weight.packed(), rows));
  };
  for (const PrefixFeature& feature : prefix_) {
    most = std::max(most, product(feature.weight, memory_.layers.sequences));
  }
  return most;
}

template class RankingModel<double>;
template class RankingModel<float>;
template class RankingModel<bf16>;

}  // namespace turbogr::model
