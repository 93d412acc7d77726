// One attention problem in a GPU's memory, laid out as in a layer: q, k and v are slices of one
// projection output, their gradients of another.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/gpu_attention.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/tensor.h"
#include "turbogr/ops/attention/cpu/attention_reference.h"
#include "turbogr/ops/attention/fuxi_attention.h"
#include "turbogr/ops/attention/hstu_attention.h"

namespace turbogr::bench {

// Sums of squares of differences and of the reference; a NaN makes the error a NaN.
struct RelativeError {
  double difference = 0;
  double size = 0;

  void add(double value, double wanted) {
    difference += (value - wanted) * (value - wanted);
    size += wanted * wanted;
  }
  double value() const { return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size); }
};

template <class T>
class GpuAttentionBatch {
 public:
  GpuAttentionBatch(const Context& ctx, const GpuAttentionProblem& problem, std::size_t sets)
      : ctx_(ctx), problem_(problem) {
    offsets_.push_back(0);
    for (const std::int64_t length : problem.lengths) offsets_.push_back(offsets_.back() + length);
    make_times();
    const std::int64_t n = problem.tokens();
    projection_ = Tensor(dtype_of<T>(), {n, columns(problem)});
    dout_ = Tensor(dtype_of<T>(), {n, gate(problem)});
    const double scale = std::pow(static_cast<double>(problem.head_dim), -0.25);
    fill(projection_, 1, scale);
    fill(dout_, 2, 1);
    position_ = Tensor(DType::kF32, {2 * std::max<std::int64_t>(problem.longest(), 1) - 1});
    time_ = Tensor(DType::kF32, {ops::kTimeBuckets});
    fill_table(position_, 3);
    fill_table(time_, 4);

    gpu_offsets_ = on_gpu(tensor_of(offsets_));
    gpu_key_times_ = on_gpu(tensor_of(key_times_));
    gpu_query_times_ = on_gpu(tensor_of(query_times_));
    gpu_position_ = on_gpu(position_);
    gpu_time_ = on_gpu(time_);
    dposition_ = Tensor(DType::kF32, position_.shape(), Device::kCuda);
    dtime_ = Tensor(DType::kF32, time_.shape(), Device::kCuda);
    for (std::size_t i = 0; i < sets; ++i) {
      sets_.push_back({on_gpu(projection_), on_gpu(dout_),
                       Tensor(dtype_of<T>(), {n, gate(problem)}, Device::kCuda),
                       Tensor(dtype_of<T>(), {n, columns(problem)}, Device::kCuda)});
    }
    const ops::AttentionShape shape = shape_of();
    plan_memory_ =
        Tensor(DType::kU8, {static_cast<std::int64_t>(ops::attention_plan_bytes<T>(kind(), shape))},
               Device::kCuda);
    ctx.workspace().reserve(std::max(problem.fuxi ? ops::fuxi_attention_workspace_bytes<T>(shape)
                                                  : ops::hstu_attention_workspace_bytes<T>(shape),
                                     problem.fuxi
                                         ? ops::fuxi_attention_backward_workspace_bytes<T>(shape)
                                         : ops::hstu_attention_backward_workspace_bytes<T>(shape)));
  }

  // Of what one call reads and writes.
  static std::size_t bytes_of(const GpuAttentionProblem& problem) {
    return static_cast<std::size_t>(problem.tokens() * 2 * (columns(problem) + gate(problem))) *
           sizeof(T);
  }
  std::size_t plan_bytes() const { return plan_memory_.bytes(); }

  void plan() {
    plan_ = ops::make_attention_plan<T>(
        ctx_, kind(),
        {gpu_offsets_.view<std::int64_t, 1>(), times(gpu_key_times_), times(gpu_query_times_)},
        shape_of(), plan_memory_);
  }

  void forward(std::size_t set) {
    const ops::AttentionProblem<T> p = problem_on_gpu(set);
    const Rows<T> out = sets_[set].out.template view<T, 2>();
    if (problem_.fuxi) {
      ops::fuxi_attention<T>(ctx_, p.q, p.k, p.v, p.bias, options<ops::FuxiAttentionOptions>(),
                             out);
    } else {
      ops::hstu_attention<T>(ctx_, p.q, p.k, p.v, p.bias, options<ops::HstuAttentionOptions>(),
                             out);
    }
  }

  void backward(std::size_t set) {
    const ops::AttentionProblem<T> p = problem_on_gpu(set);
    const Rows<T> gradient = sets_[set].gradient.template view<T, 2>();
    const Rows<const T> dout = std::as_const(sets_[set].dout).template view<T, 2>();
    const Rows<T> dq = gradient.columns(q_column(), width());
    const Rows<T> dk = gradient.columns(q_column() + width(), width());
    const Rows<T> dv = gradient.columns(v_column(), width());
    ops::AttentionBiasGradient<T> dbias;
    if (problem_.position) dbias.position = dposition_.view<float, 1>();
    if (problem_.time) dbias.time = dtime_.view<float, 1>();
    if (problem_.fuxi) {
      ops::fuxi_attention_backward<T>(ctx_, p.q, p.k, p.v, p.bias,
                                      options<ops::FuxiAttentionOptions>(), dout, dq, dk, dv,
                                      dbias);
    } else {
      ops::hstu_attention_backward<T>(ctx_, p.q, p.k, p.v, p.bias,
                                      options<ops::HstuAttentionOptions>(), dout, dq, dk, dv,
                                      dbias);
    }
  }

  // After one forward and one backward of set 0: everything against the specification in double.
  double full_error() const {
    const ops::AttentionProblem<double> p = problem_in_double();
    const Tensor dout = in_double(dout_);
    const std::int64_t n = problem_.tokens();
    Tensor out(DType::kF64, dout.shape());
    Tensor gradient(DType::kF64, projection_.shape());
    Tensor dposition(DType::kF64, position_.shape());
    Tensor dtime(DType::kF64, time_.shape());
    const Rows<double> d = gradient.view<double, 2>();
    const Rows<double> dq = d.columns(q_column(), width());
    const Rows<double> dk = d.columns(q_column() + width(), width());
    const Rows<double> dv = d.columns(v_column(), width());
    const ops::AttentionBiasGradient<double> dbias = {dposition.view<double, 1>(),
                                                      dtime.view<double, 1>()};
    if (problem_.fuxi) {
      ops::fuxi_attention_reference<double>(p, out.view<double, 2>());
      ops::fuxi_attention_backward_reference<double>(p, dout.view<double, 2>(), dq, dk, dv, dbias);
    } else {
      ops::hstu_attention_reference<double>(p, out.view<double, 2>());
      ops::hstu_attention_backward_reference<double>(p, dout.view<double, 2>(), dq, dk, dv, dbias);
    }
    double worst = 0;
    const auto compare = [&](const Tensor& gpu, const Tensor& wanted, std::int64_t from,
                             std::int64_t cols) {
      const Tensor host = in_double(to_host(ctx_, gpu));
      const std::int64_t stride = host.shape().size() == 2 ? host.shape()[1] : cols;
      RelativeError error;
      for (std::int64_t r = 0; r < host.size() / stride; ++r) {
        for (std::int64_t c = from; c < from + cols; ++c) {
          error.add(at(host, r * stride + c), at(wanted, r * stride + c));
        }
      }
      worst = larger(worst, error.value());
    };
    if (n == 0) return 0;
    compare(sets_[0].out, out, 0, gate(problem_));
    compare(sets_[0].gradient, gradient, v_column(), width());
    compare(sets_[0].gradient, gradient, q_column(), width());
    compare(sets_[0].gradient, gradient, q_column() + width(), width());
    if (problem_.position) compare(dposition_, dposition, 0, dposition.size());
    if (problem_.time) compare(dtime_, dtime, 0, dtime.size());
    return worst;
  }

  // The same of some tokens and heads of a batch of any size; without the tables' gradients.
  double sampled_error() const {
    const Tensor out = to_host(ctx_, sets_[0].out);
    const Tensor gradient = to_host(ctx_, sets_[0].gradient);
    PhiloxStream random(problem_.seed + 9);
    RelativeError out_error, dq_error, dk_error, dv_error;
    for (int sample = 0; sample < kSamples; ++sample) {
      const auto token =
          static_cast<std::int64_t>(random.uniform() * static_cast<double>(problem_.tokens()));
      const int head = static_cast<int>(random.uniform() * problem_.heads);
      add_sample(token, head, out, gradient, out_error, dq_error, dk_error, dv_error);
    }
    return larger(larger(out_error.value(), dq_error.value()),
                  larger(dk_error.value(), dv_error.value()));
  }

 private:
  static constexpr int kSamples = 48;
  struct Set {
    Tensor projection, dout, out, gradient;
  };

  static double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
  static std::int64_t gate(const GpuAttentionProblem& p) {
    return p.heads * p.head_dim * (p.fuxi ? 3 : 1);
  }
  static std::int64_t columns(const GpuAttentionProblem& p) {
    return gate(p) + 3 * p.heads * p.head_dim;  // [U | V | Q | K]
  }
  std::int64_t width() const { return problem_.heads * problem_.head_dim; }
  std::int64_t v_column() const { return gate(problem_); }
  std::int64_t q_column() const { return v_column() + width(); }
  double norm_length() const { return static_cast<double>(problem_.longest() + 11); }
  ops::AttentionKind kind() const {
    return problem_.fuxi ? ops::AttentionKind::kFuxi : ops::AttentionKind::kHstu;
  }

  ops::AttentionShape shape_of() const {
    return {.device = Device::kCuda,
            .tokens = problem_.tokens(),
            .batch = static_cast<std::int64_t>(problem_.lengths.size()),
            .max_length = problem_.longest(),
            .heads = problem_.heads,
            .query_width = problem_.head_dim,
            .value_width = problem_.head_dim,
            .tables = problem_.position || problem_.time,
            .planned = true};
  }

  template <class Options>
  Options options() const {
    return {.heads = problem_.heads, .norm_length = norm_length(), .plan = &plan_};
  }

  // Normal enough, and fast: sums of four uniform numbers.
  void fill(Tensor& tensor, std::uint64_t stream, double scale) const {
    std::uint64_t state = problem_.seed * 0x9e3779b97f4a7c15u + stream;
    auto* values = reinterpret_cast<T*>(tensor.data());
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      state += 0x9e3779b97f4a7c15u;
      std::uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      z ^= z >> 31;
      const auto sum =
          static_cast<float>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) -
          131070.F;
      values[i] = convert<T>(static_cast<float>(scale) * sum / 37837.F);
    }
  }
  void fill_table(Tensor& table, std::uint64_t stream) const {
    PhiloxStream random(problem_.seed, stream);
    for (std::int64_t i = 0; i < table.size(); ++i) {
      table.view<float, 1>()(i) = static_cast<float>(0.02 * random.normal());
    }
  }

  // Seconds between events: mostly short, sometimes a night, some events at the same time.
  void make_times() {
    PhiloxStream random(problem_.seed, 5);
    for (const std::int64_t length : problem_.lengths) {
      std::int64_t now = 1'650'000'000;
      for (std::int64_t i = 0; i < length; ++i) {
        key_times_.push_back(now);
        const double draw = random.uniform();
        now += draw < 0.2    ? 0
               : draw < 0.95 ? static_cast<std::int64_t>(60 * random.uniform())
                             : static_cast<std::int64_t>(40000 * random.uniform());
        query_times_.push_back(now);
      }
    }
  }

  static Tensor tensor_of(const std::vector<std::int64_t>& values) {
    Tensor tensor(DType::kI64, {static_cast<std::int64_t>(values.size())});
    if (!values.empty()) std::memcpy(tensor.data(), values.data(), tensor.bytes());
    return tensor;
  }
  Tensor on_gpu(const Tensor& host) const {
    Tensor tensor(host.dtype(), host.shape(), Device::kCuda);
    copy_tensor(ctx_, tensor, host);
    return tensor;
  }
  static double at(const Tensor& tensor, std::int64_t i) {
    switch (tensor.dtype()) {
      case DType::kF64:
        return reinterpret_cast<const double*>(tensor.data())[i];
      case DType::kBf16:
        return static_cast<float>(reinterpret_cast<const bf16*>(tensor.data())[i]);
      default:
        return reinterpret_cast<const float*>(tensor.data())[i];
    }
  }
  static Tensor in_double(const Tensor& tensor) {
    Tensor wide(DType::kF64, tensor.shape());
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      reinterpret_cast<double*>(wide.data())[i] = at(tensor, i);
    }
    return wide;
  }

  View<const std::int64_t, 1> times(const Tensor& tensor) const {
    return problem_.time ? tensor.view<std::int64_t, 1>() : View<const std::int64_t, 1>{};
  }

  ops::AttentionProblem<T> problem_on_gpu(std::size_t set) const {
    ops::AttentionProblem<T> p;
    const Rows<const T> all = sets_[set].projection.template view<T, 2>();
    p.q = {all.columns(q_column(), width()), gpu_offsets_.view<std::int64_t, 1>()};
    p.k = all.columns(q_column() + width(), width());
    p.v = all.columns(v_column(), width());
    if (problem_.position) p.bias.position = gpu_position_.view<float, 1>();
    if (problem_.time) p.bias.time = gpu_time_.view<float, 1>();
    p.bias.key_times = times(gpu_key_times_);
    p.bias.query_times = times(gpu_query_times_);
    return p;
  }

  ops::AttentionProblem<double> problem_in_double() const {
    wide_projection_ = in_double(projection_);
    wide_position_ = in_double(position_);
    wide_time_ = in_double(time_);
    ops::AttentionProblem<double> p;
    const Rows<const double> all = std::as_const(wide_projection_).view<double, 2>();
    p.q = {all.columns(q_column(), width()),
           {offsets_.data(), {static_cast<std::int64_t>(offsets_.size())}}};
    p.k = all.columns(q_column() + width(), width());
    p.v = all.columns(v_column(), width());
    if (problem_.position) p.bias.position = std::as_const(wide_position_).view<double, 1>();
    if (problem_.time) {
      p.bias.time = std::as_const(wide_time_).view<double, 1>();
      p.bias.key_times = {key_times_.data(), {problem_.tokens()}};
      p.bias.query_times = {query_times_.data(), {problem_.tokens()}};
    }
    p.heads = problem_.heads;
    p.norm_length = norm_length();
    return p;
  }

  struct Pair {
    double weight, dscore;  // of the latent map
    double position, time;  // of the tables
  };
  Pair pair(std::int64_t query, std::int64_t key, int head) const {
    const std::int64_t d = problem_.head_dim;
    double dot = 0;
    double dweight = 0;
    const std::int64_t dout_column =
        head * (gate(problem_) / problem_.heads) + (problem_.fuxi ? 2 * d : 0);
    for (std::int64_t c = 0; c < d; ++c) {
      dot += value(projection_, query, q_column() + head * d + c) *
             value(projection_, key, q_column() + width() + head * d + c);
      dweight +=
          value(dout_, query, dout_column + c) * value(projection_, key, v_column() + head * d + c);
    }
    Pair p{};
    if (problem_.position) p.position = at(position_, problem_.longest() - 1 + key - query);
    if (problem_.time) {
      p.time = at(time_, ops::time_bucket(query_times_[static_cast<std::size_t>(query)],
                                          key_times_[static_cast<std::size_t>(key)]));
    }
    const double score = dot + (problem_.fuxi ? 0 : p.position + p.time);
    const double s = ops::reference_sigmoid(score);
    p.weight = score * s / norm_length();
    p.dscore = dweight / norm_length() * s * (1 + score * (1 - s));
    return p;
  }
  static double value(const Tensor& matrix, std::int64_t row, std::int64_t column) {
    return at(matrix, row * matrix.shape()[1] + column);
  }

  void add_sample(std::int64_t token, int head, const Tensor& out, const Tensor& gradient,
                  RelativeError& out_error, RelativeError& dq_error, RelativeError& dk_error,
                  RelativeError& dv_error) const {
    const auto after = std::upper_bound(offsets_.begin(), offsets_.end(), token);
    const std::int64_t begin = *(after - 1);
    const std::int64_t end = *after;
    const std::int64_t d = problem_.head_dim;
    const std::int64_t head_columns = gate(problem_) / problem_.heads;
    const auto count = static_cast<std::size_t>(d);
    std::vector<double> y(static_cast<std::size_t>(head_columns)), dq(count), dk(count), dv(count);
    // Columns of one head in a row, added to a sum.
    const auto add = [d](std::vector<double>& to, std::int64_t from, double weight,
                         const Tensor& matrix, std::int64_t row, std::int64_t column) {
      for (std::int64_t c = 0; c < d; ++c) {
        to[static_cast<std::size_t>(from + c)] += weight * value(matrix, row, column + c);
      }
    };
    for (std::int64_t key = begin; key <= token; ++key) {
      const Pair p = pair(token, key, head);
      const std::int64_t v = v_column() + head * d;
      if (problem_.fuxi) {
        add(y, 0, p.position, projection_, key, v);
        add(y, d, p.time, projection_, key, v);
      }
      add(y, head_columns - d, p.weight, projection_, key, v);
      add(dq, 0, p.dscore, projection_, key, q_column() + width() + head * d);
    }
    for (std::int64_t query = token; query < end; ++query) {
      const Pair p = pair(query, token, head);
      const std::int64_t column = head * head_columns;
      if (problem_.fuxi) {
        add(dv, 0, p.position, dout_, query, column);
        add(dv, 0, p.time, dout_, query, column + d);
      }
      add(dv, 0, p.weight, dout_, query, column + head_columns - d);
      add(dk, 0, p.dscore, projection_, query, q_column() + head * d);
    }
    for (std::int64_t c = 0; c < head_columns; ++c) {
      out_error.add(value(out, token, head * head_columns + c), y[static_cast<std::size_t>(c)]);
    }
    for (std::int64_t c = 0; c < d; ++c) {
      const auto i = static_cast<std::size_t>(c);
      dq_error.add(value(gradient, token, q_column() + head * d + c), dq[i]);
      dk_error.add(value(gradient, token, q_column() + width() + head * d + c), dk[i]);
      dv_error.add(value(gradient, token, v_column() + head * d + c), dv[i]);
    }
  }

  const Context& ctx_;
  GpuAttentionProblem problem_;
  std::vector<std::int64_t> offsets_, key_times_, query_times_;
  Tensor projection_, dout_, position_, time_;  // on the host
  mutable Tensor wide_projection_, wide_position_, wide_time_;
  Tensor gpu_offsets_, gpu_key_times_, gpu_query_times_, gpu_position_, gpu_time_;
  Tensor dposition_, dtime_, plan_memory_;
  std::vector<Set> sets_;
  ops::AttentionPlan plan_;
};

}  // namespace turbogr::bench
