#include "turbogr/train/retrieval_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "turbogr/model/buffers.h"
#include "turbogr/ops/embedding.h"
#include "turbogr/ops/sampled_softmax.h"
#include "turbogr/train/negative_sampler.h"

namespace turbogr::train {
namespace {

using data::Batch;
using model::first_rows;
using model::first_values;

float* floats(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }

// The softmax's options are the same forward and backward.
ops::SoftmaxOptions softmax_options(const RetrievalOptions& options) {
  return {.temperature = options.temperature, .normalize = true};
}

double largest_magnitude(const Tensor& tensor) {
  const auto* values = reinterpret_cast<const float*>(tensor.data());
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double magnitude = std::abs(static_cast<double>(values[i]));
    if (!(magnitude <= largest)) largest = magnitude;  // a NaN sticks
  }
  return largest;
}

}  // namespace

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, const RetrievalOptions& options,
                                      std::int64_t num_items)
    : options_(options),
      model_(ctx, options.model, options.memory),
      table_(num_items, options.model.width, options.table_optimiser),
      touched_(num_items) {
  const std::int64_t n = options.memory.capacity;
  const std::int64_t width = options.model.width;
  const std::int64_t r = options.negatives;
  TGR_CHECK(r >= 1, "a loss over ", r, " negatives; give at least 1");
  for (int i = 0; i < model_.parameters().size(); ++i) {
    Tensor& value = model_.parameters().value(i);
    first_moments_.emplace_back(DType::kF32, value.shape());
    second_moments_.emplace_back(DType::kF32, value.shape());
    const bool decays = options.decay_vectors || model_.parameters().spec(i).decay;
    slices_.push_back({floats(value), floats(model_.parameters().gradient(i)),
                       floats(first_moments_.back()), floats(second_moments_.back()), value.size(),
                       decays ? 1.0 : 0.0});
  }
  const std::int64_t per_batch = options.shared_negatives ? r : n * r;
  const std::int64_t places = options.shared_negatives ? r : n * r;
  for (std::int64_t batch = 0; batch < options.accumulate; ++batch) {
    negative_ids_.emplace_back(DType::kI64, std::vector{per_batch});
  }
  // Every token touches its item, its target and its negatives, and no more rows than there are.
  const std::int64_t rows = std::min(num_items, options.accumulate * (2 * n + per_batch));
  positive_places_ = Tensor(DType::kI32, {n});
  negative_places_ = Tensor(DType::kI32, {places});
  input_places_ = Tensor(DType::kI64, {n});
  rows_ = Tensor(dtype_of<T>(), {n, width});
  compact_ = Tensor(dtype_of<T>(), {rows, width});
  compact_gradient_ = Tensor(DType::kF32, {rows, width});
  dquery_ = Tensor(dtype_of<T>(), {n, width});
  loss_ = Tensor(DType::kF32, {n});
  log_sum_exp_ = Tensor(DType::kF32, {n});
  dloss_ = Tensor(DType::kF32, {n});
  group_unique_ = Tensor(DType::kI64, {n});
  group_offsets_ = Tensor(DType::kI64, {n + 1});
  group_positions_ = Tensor(DType::kI32, {n});
  group_inverse_ = Tensor(DType::kI32, {n});

  const optim::AdamWSlice touched_gradients = {.count = rows * width};
  ctx.workspace().reserve(
      std::max({ops::softmax_workspace_bytes(ctx, n, rows, width, options.shared_negatives ? 0 : r),
                ops::dedup_ids_workspace_bytes(n), optim::squared_norm_workspace_bytes(slices_),
                optim::squared_norm_workspace_bytes({&touched_gradients, 1})}));
}

template <class T>
void RetrievalTrainer<T>::initialise(const Context& ctx) {
  model_.initialise(ctx, options_.seed);
  table_.initialise(ctx, options_.seed, options_.table_scale);
}

template <class T>
model::StepInput RetrievalTrainer<T>::input_of(const Batch& batch, bool training) const {
  model::StepInput input;
  input.offsets = batch.offsets_view();
  input.num_tokens = batch.num_tokens();
  input.key_times = data::view_of(batch.key_times);
  input.query_times = data::view_of(batch.query_times);
  input.signals = data::view_of(batch.signals);
  input.row_keys = data::view_of(batch.row_keys);
  input.training = training;
  input.seed = options_.seed;
  input.step = static_cast<std::uint64_t>(steps_done_);
  return input;
}

template <class T>
View<std::int64_t, 2> RetrievalTrainer<T>::own_negatives(std::size_t batch, std::int64_t tokens) {
  return {negative_ids_[batch].template view<std::int64_t, 1>().data, {tokens, options_.negatives}};
}

// All batches of an update share one set of touched rows, so that their gradients meet there.
template <class T>
void RetrievalTrainer<T>::draw_and_mark(const Context& ctx, std::span<const Batch> batches) {
  const NegativeKey key = {options_.seed, static_cast<std::uint64_t>(steps_done_)};
  touched_.clear();
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const View<std::int64_t, 1> all = negative_ids_[b].template view<std::int64_t, 1>();
    if (options_.shared_negatives) {
      draw_shared_negatives({key.seed, key.step * batches.size() + b}, table_.rows(), all);
      touched_.mark(ctx, all);
    } else {
      const auto own = own_negatives(b, batches[b].num_tokens());
      draw_own_negatives(ctx, key, table_.rows(), data::view_of(batches[b].row_keys), own);
      touched_.mark(ctx, {own.data, {own.size()}});
    }
    touched_.mark(ctx, data::view_of(batches[b].items));
    touched_.mark(ctx, data::view_of(batches[b].targets));
  }
  touched_.number(ctx);
}

// Adds the batch's gradients, each token's loss weighed by `weight`; returns the sum of the losses.
template <class T>
double RetrievalTrainer<T>::forward_backward(const Context& ctx, const Batch& batch,
                                             std::size_t index, double weight) {
  const std::int64_t n = batch.num_tokens();
  const std::int64_t touched = touched_.ids().shape[0];
  const model::StepInput input = input_of(batch, /*training=*/true);
  const Rows<T> rows = first_rows<T>(rows_, n);
  const Rows<T> dquery = first_rows<T>(dquery_, n);

  ops::gather_rows<float, T>(ctx, table_.weights(), data::view_of(batch.items), rows);
  const Rows<const T> query = model_.forward(ctx, input, rows);

  ops::SampledSoftmaxInputs<T> candidates;
  candidates.query = query;
  candidates.items = first_rows<T>(std::as_const(compact_), touched);
  const View<std::int32_t, 1> positive = first_values<std::int32_t>(positive_places_, n);
  touched_.places_of(ctx, data::view_of(batch.targets), positive);
  candidates.positive = positive;
  const std::int64_t drawn =
      options_.shared_negatives ? options_.negatives : n * options_.negatives;
  const View<std::int32_t, 1> places = first_values<std::int32_t>(negative_places_, drawn);
  touched_.places_of(ctx, {negative_ids_[index].template view<std::int64_t, 1>().data, {drawn}},
                     places);
  if (options_.shared_negatives) {
    candidates.shared_negatives = places;
  } else {
    candidates.negatives = {places.data, {n, options_.negatives}};
  }
  const View<float, 1> loss = first_values<float>(loss_, n);
  const View<float, 1> log_sum_exp = first_values<float>(log_sum_exp_, n);
  ops::sampled_softmax<T>(ctx, candidates, softmax_options(options_), {loss, log_sum_exp});

  const View<float, 1> dloss = first_values<float>(dloss_, n);
  std::fill_n(dloss.data, n, static_cast<float>(weight));
  const Rows<float> ditems = first_rows<float>(compact_gradient_, touched);
  ops::sampled_softmax_backward<T>(ctx, candidates, softmax_options(options_), log_sum_exp, dloss,
                                   dquery, ditems);
  model_.backward(ctx, input, dquery, rows);

  // The inputs' gradients join those of the candidates, duplicates in order.
  const View<std::int64_t, 1> input_places = first_values<std::int64_t>(input_places_, n);
  touched_.places_of(ctx, data::view_of(batch.items), positive);
  std::copy_n(positive.data, n, input_places.data);
  const ops::DedupOutput groups = {first_values<std::int64_t>(group_unique_, n),
                                   first_values<std::int64_t>(group_offsets_, n + 1),
                                   first_values<std::int32_t>(group_positions_, n),
                                   first_values<std::int32_t>(group_inverse_, n)};
  const std::int64_t unique = ops::dedup_ids(ctx, input_places, groups);
  ops::scatter_add_rows<T>(ctx, rows, groups.first(unique), ditems);

  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += loss(i);
  return sum;
}

template <class T>
void RetrievalTrainer<T>::update(const Context& ctx, StepResult& result) {
  const View<const std::int64_t, 1> ids = touched_.ids();
  const Rows<const float> gradient =
      first_rows<float>(std::as_const(compact_gradient_), ids.shape[0]);
  const optim::AdamWSlice sparse = {.gradient = gradient.data,
                                    .count = gradient.rows * gradient.cols};
  const double squares = optim::squared_norm(ctx, slices_) + optim::squared_norm(ctx, {&sparse, 1});
  result.gradient_norm = std::sqrt(squares);
  result.finite = std::isfinite(result.loss) && std::isfinite(squares);
  if (!result.finite) return;

  const double factor = options_.schedule.factor(steps_done_);
  const double scale = options_.clip > 0 && result.gradient_norm > options_.clip
                           ? options_.clip / result.gradient_norm
                           : 1.0;
  optim::AdamWOptions dense = options_.dense;
  dense.rate *= factor;
  dense.step = steps_done_ + 1;
  dense.gradient_scale = scale;
  optim::adamw(ctx, slices_, dense);
  embedding::SparseUpdateOptions sparse_options = options_.table;
  sparse_options.rate *= factor;
  sparse_options.step = steps_done_ + 1;
  sparse_options.gradient_scale = scale;
  table_.update(ctx, ids, gradient, sparse_options);
  model_.refresh(ctx);
  result.rate = dense.rate;
}

template <class T>
StepResult RetrievalTrainer<T>::step(const Context& ctx, std::span<const Batch> batches) {
  TGR_CHECK(!batches.empty() && static_cast<std::int64_t>(batches.size()) <= options_.accumulate,
            "a step of ", batches.size(), " batches; planned for 1 to ", options_.accumulate);
  StepResult result;
  for (const Batch& batch : batches) {
    TGR_CHECK(batch.num_tokens() <= options_.memory.capacity, "a batch of ", batch.num_tokens(),
              " tokens where ", options_.memory.capacity,
              " were planned for; raise train.tokens or lower train.batch");
    result.tokens += batch.num_tokens();
  }
  TGR_CHECK(result.tokens > 0, "a step without tokens; the batch is empty");

  draw_and_mark(ctx, batches);
  const std::int64_t touched = touched_.ids().shape[0];
  ops::gather_rows<float, T>(ctx, table_.weights(), touched_.ids(),
                             first_rows<T>(compact_, touched));
  std::memset(compact_gradient_.data(), 0,
              static_cast<std::size_t>(touched * table_.width()) * sizeof(float));
  model_.parameters().zero_gradients(ctx);

  const double weight = 1.0 / static_cast<double>(result.tokens);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    result.loss += forward_backward(ctx, batches[b], b, weight);
  }
  result.loss *= weight;
  update(ctx, result);
  ++steps_done_;
  return result;
}

template <class T>
void RetrievalTrainer<T>::last_vectors(const Context& ctx, const Batch& batch, Rows<T> out) {
  const std::int64_t n = batch.num_tokens();
  TGR_CHECK(n <= options_.memory.capacity, "an evaluation batch of ", n, " tokens where ",
            options_.memory.capacity, " were planned for; lower eval.batch");
  const Rows<T> rows = first_rows<T>(rows_, n);
  ops::gather_rows<float, T>(ctx, table_.weights(), data::view_of(batch.items), rows);
  const Rows<const T> vectors = model_.forward(ctx, input_of(batch, /*training=*/false), rows);
  for (std::int64_t b = 0; b < batch.num_sequences(); ++b) {
    const std::int64_t last = batch.offsets[static_cast<std::size_t>(b) + 1] - 1;
    std::copy_n(vectors.row(last), vectors.cols, out.row(b));
  }
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::model_tensors() {
  std::vector<NamedTensor> tensors = {named("items", table_.weight_tensor())};
  for (int i = 0; i < model_.parameters().size(); ++i) {
    tensors.push_back(named(model_.parameters().spec(i).name, model_.parameters().value(i)));
  }
  return tensors;
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::optimiser_tensors() {
  std::vector<NamedTensor> tensors;
  if (table_.first_moment().size() > 0) {
    tensors.push_back(named("items.first_moment", table_.first_moment()));
  }
  if (table_.second_moment().size() > 0) {
    tensors.push_back(named("items.second_moment", table_.second_moment()));
  }
  for (int i = 0; i < model_.parameters().size(); ++i) {
    const std::string& name = model_.parameters().spec(i).name;
    const auto at = static_cast<std::size_t>(i);
    tensors.push_back(named(name + ".first_moment", first_moments_[at]));
    tensors.push_back(named(name + ".second_moment", second_moments_[at]));
  }
  return tensors;
}

template <class T>
std::vector<typename RetrievalTrainer<T>::LargestTensor> RetrievalTrainer<T>::largest_tensors()
    const {
  std::vector<LargestTensor> all;
  for (int i = 0; i < model_.parameters().size(); ++i) {
    const std::string& name = model_.parameters().spec(i).name;
    all.push_back({name, largest_magnitude(model_.parameters().value(i))});
    all.push_back({"gradient of " + name, largest_magnitude(model_.parameters().gradient(i))});
  }
  // Not finite first, then by size.
  std::sort(all.begin(), all.end(), [](const LargestTensor& a, const LargestTensor& b) {
    const bool a_bad = !std::isfinite(a.largest);
    const bool b_bad = !std::isfinite(b.largest);
    return a_bad != b_bad ? a_bad : (!a_bad && a.largest > b.largest);
  });
  return all;
}

template <class T>
std::size_t RetrievalTrainer<T>::planned_bytes(const Context& ctx) const {
  std::size_t total = ctx.workspace().capacity() + model_.activation_bytes() + rows_.bytes() +
                      compact_.bytes() + compact_gradient_.bytes() + dquery_.bytes() +
                      negative_places_.bytes();
  for (const Tensor& ids : negative_ids_) total += ids.bytes();
  for (const Tensor& moment : first_moments_)
    total += 4 * moment.bytes();  // and weights, gradients
  return total + table_.bytes();
}

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
