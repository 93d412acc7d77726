#include "bench/layer_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "bench/numbers.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/trace.h"
#include "turbogr/model/attention_block.h"
#include "turbogr/model/flops.h"
#include "turbogr/ops/attention/attention_plan.h"

namespace turbogr::bench {
namespace {

using model::ModelOptions;

// More than the largest GPU cache, a few times.
constexpr std::size_t kRotatedBytes = std::size_t{256} << 20;
constexpr std::size_t kMostSets = 8;
constexpr int kWarmUps = 5;
constexpr int kProfiled = 3;
constexpr std::int64_t kSmallLengths[] = {100, 1, 37};
// The longest sequence of the timed batch that a CPU is asked to follow.
constexpr std::int64_t kLongestChecked = 600;

// On the host. The rows are numbers that bf16 holds, so that every format starts from the same.
struct LayerInput {
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int64_t> key_times, query_times;
  Tensor x, dy;  // [N, D] in f32
};

// Gaps in time are zero (events of one page) or anything from a second to two days.
LayerInput make_input(const std::vector<std::int64_t>& lengths, std::int64_t width,
                      std::uint64_t seed) {
  LayerInput input;
  PhiloxStream random(seed, 3);
  for (const std::int64_t length : lengths) {
    std::int64_t now = 1'700'000'000;
    for (std::int64_t i = 0; i < length; ++i) {
      input.key_times.push_back(now);
      const bool together = random.uniform() < 0.4;
      const auto gap = static_cast<std::int64_t>(std::exp(random.uniform() * std::log(172'800.0)));
      now += together ? 0 : gap;
      input.query_times.push_back(now);
    }
    input.offsets.push_back(input.offsets.back() + length);
  }
  const auto rows = [&](std::uint64_t stream) {
    Tensor tensor(DType::kF32, {input.offsets.back(), width});
    PhiloxStream numbers(seed, stream);
    for (float& value : std::span(reinterpret_cast<float*>(tensor.data()),
                                  static_cast<std::size_t>(tensor.size()))) {
      value = static_cast<float>(bf16(static_cast<float>(numbers.normal())));
    }
    return tensor;
  };
  input.x = rows(1);
  input.dy = rows(2);
  return input;
}

LayerInput one_sequence(const LayerInput& input, std::size_t index) {
  const std::int64_t begin = input.offsets[index];
  const std::int64_t length = input.offsets[index + 1] - begin;
  const auto some = [&](const std::vector<std::int64_t>& times) {
    return std::vector(times.begin() + begin, times.begin() + begin + length);
  };
  const auto rows = [&](const Tensor& all) {
    const std::int64_t width = all.shape()[1];
    Tensor part(DType::kF32, {length, width});
    std::memcpy(part.data(), all.view<float, 2>().data + begin * width, part.bytes());
    return part;
  };
  return {
      {0, length}, some(input.key_times), some(input.query_times), rows(input.x), rows(input.dy)};
}

template <class T>
Tensor rounded(const Tensor& rows) {
  Tensor result(dtype_of<T>(), rows.shape());
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    reinterpret_cast<T*>(result.data())[i] =
        convert<T>(reinterpret_cast<const float*>(rows.data())[i]);
  }
  return result;
}

// One layer and its batch in a device's memory.
template <class T>
class Layer {
 public:
  Layer(const Context& ctx, const ModelOptions& options, const LayerInput& input, std::size_t sets,
        std::uint64_t seed)
      : ctx_(ctx),
        options_(options),
        tokens_(input.offsets.back()),
        parameters_(ctx.device()),
        block_(options, 0, parameters_),
        saved_(options, tokens_, ctx.device()),
        scratch_(options, tokens_, ctx.device()),
        y_(dtype_of<T>(), input.x.shape(), ctx.device()),
        dx_(dtype_of<T>(), input.x.shape(), ctx.device()) {
    parameters_.initialise(ctx, seed);
    block_.refresh(ctx, parameters_);
    const Tensor x = rounded<T>(input.x);
    const Tensor dy = rounded<T>(input.dy);
    for (std::size_t i = 0; i < sets; ++i) sets_.push_back({on_device(x), on_device(dy)});
    offsets_ = on_device(integers(input.offsets));
    if (options.time_bias()) {
      key_times_ = on_device(integers(input.key_times));
      query_times_ = on_device(integers(input.query_times));
    }
    shape_ = {.device = ctx.device(),
              .threads = ctx.threads(),
              .tokens = tokens_,
              .batch = offsets_.size() - 1,
              .heads = options.heads,
              .query_width = options.dq,
              .value_width = options.dv,
              .tables = options.position_bias() || options.time_bias(),
              .planned = true,
              .position_length = options.position_bias() ? options.max_length : 0};
    for (std::size_t b = 1; b < input.offsets.size(); ++b) {
      shape_.max_length = std::max(shape_.max_length, input.offsets[b] - input.offsets[b - 1]);
    }
    const std::size_t plan_bytes = ops::attention_plan_bytes<T>(ops::AttentionKind::kHstu, shape_);
    plan_memory_ = Tensor(DType::kU8, {static_cast<std::int64_t>(plan_bytes)}, ctx.device());
    ctx.workspace().reserve(block_.workspace_bytes(ctx, shape_));
    step_.offsets = std::as_const(offsets_).view<std::int64_t, 1>();
    step_.num_tokens = tokens_;
    if (options.time_bias()) {
      step_.key_times = std::as_const(key_times_).view<std::int64_t, 1>();
      step_.query_times = std::as_const(query_times_).view<std::int64_t, 1>();
    }
    step_.training = true;
    step_.plan = &plan_;
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  void forward(std::size_t set) {
    plan_ = ops::make_attention_plan<T>(ctx_, ops::AttentionKind::kHstu,
                                        {step_.offsets, step_.key_times, step_.query_times}, shape_,
                                        plan_memory_);
    block_.forward(ctx_, parameters_, step_, rows(sets_[set].x), saved_, y_.template view<T, 2>());
  }

  void backward(std::size_t set) {
    parameters_.zero_gradients(ctx_);
    block_.backward(ctx_, parameters_, step_, rows(sets_[set].x), saved_, rows(sets_[set].dy),
                    scratch_, dx_.template view<T, 2>());
  }

  // On the host.
  Tensor y() const { return to_host(ctx_, y_); }
  Tensor dx() const { return to_host(ctx_, dx_); }
  std::vector<Tensor> results() const {
    std::vector<Tensor> all;
    all.push_back(y());
    all.push_back(dx());
    for (int i = 0; i < parameters_.size(); ++i) {
      all.push_back(to_host(ctx_, parameters_.gradient(i)));
    }
    return all;
  }

 private:
  struct Set {
    Tensor x, dy;
  };
  static Rows<const T> rows(const Tensor& tensor) { return tensor.view<T, 2>(); }
  static Tensor integers(const std::vector<std::int64_t>& values) {
    Tensor tensor(DType::kI64, {static_cast<std::int64_t>(values.size())});
    if (!values.empty()) std::memcpy(tensor.data(), values.data(), tensor.bytes());
    return tensor;
  }
  Tensor on_device(const Tensor& host) const {
    Tensor tensor(host.dtype(), host.shape(), ctx_.device());
    copy_tensor(ctx_, tensor, host);
    return tensor;
  }

  const Context& ctx_;
  ModelOptions options_;
  std::int64_t tokens_;
  model::ParameterSet<T> parameters_;
  model::AttentionBlock<T> block_;
  model::AttentionSaved<T> saved_;
  model::AttentionScratch<T> scratch_;
  Tensor y_, dx_;
  std::vector<Set> sets_;
  Tensor offsets_, key_times_, query_times_, plan_memory_;
  ops::AttentionShape shape_;
  ops::AttentionPlan plan_;
  model::StepInput step_;
};

// Of the sums of squares over the rows of `got` from `begin` on; a NaN stays one.
double error_of(const Tensor& got, std::int64_t begin, const Tensor& wanted) {
  const std::int64_t skipped = begin == 0 ? 0 : begin * wanted.shape().back();
  double difference = 0;
  double size = 0;
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    const double value = element(wanted, i);
    const double gap = element(got, skipped + i) - value;
    difference += gap * gap;
    size += value * value;
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// T on `ctx` against Reference on the CPU: everything there is of a small batch.
template <class T, class Reference>
double small_error(const Context& ctx, const LayerProblem& problem) {
  LayerProblem small = problem;
  small.lengths.assign(std::begin(kSmallLengths), std::end(kSmallLengths));
  const LayerInput input = make_input(small.lengths, small.width, small.seed + 9);
  const ModelOptions options = small.options();
  Layer<T> layer(ctx, options, input, 1, small.seed);
  layer.forward(0);
  layer.backward(0);
  Layer<Reference> reference(ctx.host(), options, input, 1, small.seed);
  reference.forward(0);
  reference.backward(0);
  const std::vector<Tensor> got = layer.results();
  const std::vector<Tensor> wanted = reference.results();
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) error = worse(error_of(got[i], 0, wanted[i]), error);
  return error;
}

// After forward and backward of the whole batch: its longest sequence that is not too long for a
// CPU, made there alone.
template <class T>
double full_error(const Context& ctx, const LayerProblem& problem, const LayerInput& input,
                  const Layer<T>& layer) {
  std::size_t index = problem.lengths.size();
  std::int64_t length = 0;
  for (std::size_t b = 0; b < problem.lengths.size(); ++b) {
    if (problem.lengths[b] > kLongestChecked || problem.lengths[b] <= length) continue;
    index = b;
    length = problem.lengths[b];
  }
  // All of them long: the shortest.
  if (length == 0) {
    index = static_cast<std::size_t>(
        std::min_element(problem.lengths.begin(), problem.lengths.end()) - problem.lengths.begin());
  }
  const LayerInput alone = one_sequence(input, index);
  Layer<float> reference(ctx.host(), problem.options(), alone, 1, problem.seed);
  reference.forward(0);
  reference.backward(0);
  const std::int64_t begin = input.offsets[index];
  return worse(error_of(layer.y(), begin, reference.y()),
               error_of(layer.dx(), begin, reference.dx()));
}

// Begin, middle and end of one pass, on the clock of its device.
class PassClock {
 public:
  explicit PassClock(const Context& ctx) : ctx_(ctx) {
    for (int i = 0; i < 3; ++i) events_.emplace_back(ctx, /*timed=*/true);
  }
  void mark(std::size_t i) {
    events_[i].record(ctx_);
    host_ns_[i] = Trace::now_ns();
  }
  void wait() const { events_[2].wait(); }
  double ms(std::size_t from, std::size_t to) const {
    return ctx_.device() == Device::kCuda
               ? events_[to].ms_since(events_[from])
               : static_cast<double>(host_ns_[to] - host_ns_[from]) * 1e-6;
  }

 private:
  const Context& ctx_;
  std::vector<Event> events_;
  std::int64_t host_ns_[3] = {};
};

template <class T>
LayerFigures measure(const LayerProblem& problem) {
  const ModelOptions options = problem.options();
  model::check_model_options(options);
  LayerFigures figures;
  Context ctx({.device = problem.device, .threads = problem.threads});
  const bool bf16s = problem.dtype == DType::kBf16;
  figures.allowed_error = bf16s ? 2e-2 : 1e-4;
  figures.small_error = bf16s || problem.device == Device::kCuda
                            ? small_error<T, float>(ctx, problem)
                            : small_error<T, double>(ctx, problem);

  const LayerInput input = make_input(problem.lengths, problem.width, problem.seed);
  const std::size_t bytes = 2 * sizeof(T) * static_cast<std::size_t>(input.x.size());
  const std::size_t sets = std::clamp<std::size_t>(kRotatedBytes / bytes + 1, 2, kMostSets);
  Layer<T> layer(ctx, options, input, sets, problem.seed);
  layer.forward(0);
  layer.backward(0);
  figures.full_error = full_error(ctx, problem, input, layer);
  const double error = worse(figures.small_error, figures.full_error);
  TGR_CHECK(error <= figures.allowed_error, "bench layer: wrong answer, relative errors ",
            figures.small_error, " (a small batch) and ", figures.full_error, " (the batch) where ",
            figures.allowed_error, " is allowed; not timed");

  // All passes are queued at once: a GPU never waits for the host.
  const int passes = kWarmUps + problem.repeats;
  std::vector<PassClock> clocks;
  clocks.reserve(static_cast<std::size_t>(passes));
  for (int i = 0; i < passes; ++i) clocks.emplace_back(ctx);
  for (int i = 0; i < passes; ++i) {
    PassClock& clock = clocks[static_cast<std::size_t>(i)];
    const std::size_t set = static_cast<std::size_t>(i) % sets;
    clock.mark(0);
    layer.forward(set);
    clock.mark(1);
    layer.backward(set);
    clock.mark(2);
  }
  clocks.back().wait();
  std::vector<double> both, forward, backward;
  for (std::size_t i = kWarmUps; i < clocks.size(); ++i) {
    both.push_back(clocks[i].ms(0, 2));
    forward.push_back(clocks[i].ms(0, 1));
    backward.push_back(clocks[i].ms(1, 2));
  }
  figures.both = summary_of(std::move(both));
  figures.forward = summary_of(std::move(forward));
  figures.backward = summary_of(std::move(backward));

  if (problem.device == Device::kCuda) {
    SectionTimer timer;
    ctx.set_sections(&timer);
    for (std::size_t i = 0; i < kProfiled; ++i) {
      layer.forward(i % sets);
      layer.backward(i % sets);
      timer.finish(ctx);
    }
    ctx.set_sections(nullptr);
    for (std::size_t s = 0; s < kSections; ++s) {
      figures.section_ms[s] = timer.ms(static_cast<Section>(s)) / kProfiled;
    }
    const DeviceMemory memory = device_memory();
    figures.memory_bytes = memory.total - memory.free;
  }
  return figures;
}

}  // namespace

std::int64_t LayerProblem::tokens() const {
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) total += length;
  return total;
}

std::int64_t LayerProblem::longest() const {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

ModelOptions LayerProblem::options() const {
  return {.kind = model::ModelKind::kHstu,
          .layers = 1,
          .width = width,
          .heads = heads,
          .dq = head_dim,
          .dv = head_dim,
          .max_length = longest(),
          .norm_length = static_cast<double>(longest() + 11),
          .bias = bias,
          .concat = concat};
}

double LayerProblem::flops() const { return model::step_flops(options(), lengths).causal; }

LayerFigures measure_layer(const LayerProblem& problem) {
  TGR_CHECK(!problem.lengths.empty(), "bench layer: no sequences; give at least one length");
  TGR_CHECK(problem.dtype == DType::kBf16 || problem.dtype == DType::kF32, "bench layer: dtype is ",
            name_of(problem.dtype), "; use bf16 or f32");
  return problem.dtype == DType::kBf16 ? measure<bf16>(problem) : measure<float>(problem);
}

}  // namespace turbogr::bench
