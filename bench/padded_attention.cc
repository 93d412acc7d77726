#include "bench/padded_attention.h"

#include <algorithm>
#include <cstring>

#include "bench/gemm.h"
#include "bench/padded_simd.h"
#include "turbogr/ops/attention/time_bucket.h"

namespace turbogr::bench {
namespace {

constexpr std::int64_t kBuckets = 129;

double read(const Tensor& tensor, std::int64_t i) {
  return tensor.dtype() == DType::kBf16
             ? static_cast<float>(reinterpret_cast<const bf16*>(tensor.data())[i])
             : reinterpret_cast<const float*>(tensor.data())[i];
}

float* floats(Tensor& tensor) { return reinterpret_cast<float*>(tensor.data()); }
const float* floats(const Tensor& tensor) { return reinterpret_cast<const float*>(tensor.data()); }

// Pointer to element `index` whatever the format.
std::byte* at(Tensor& tensor, std::int64_t index) {
  return tensor.data() + static_cast<std::size_t>(index) * size_of(tensor.dtype());
}

}  // namespace

// B sequences, S the longest, H heads, d their width.
struct PaddedAttention::State {
  const Context& ctx;
  PaddedProblem problem;
  std::int64_t B, S, H, d;
  std::vector<std::int64_t> key_times, query_times;  // jagged
  std::vector<std::int64_t> offsets{0};

  Tensor q, k, v, dout_latent;         // [B, H, S, d]
  Tensor v_wide, dout_pos, dout_time;  // [B, S, H * d], FuXi's maps share them over heads
  Tensor position, time;               // tables, f32
  Tensor bias;                         // [B, S, S] f32, HSTU
  Tensor buckets;                      // [B, S, S] u8
  Tensor pos_map, time_map;            // [B, S, S], FuXi
  Tensor scores, a;                    // [B, H, S, S]
  Tensor out, out_pos, out_time;
  Tensor dq, dk, dv, dv_pos, dv_time;  // f32
  Tensor dpos_map, dtime_map;          // [B, S, S] f32, FuXi
  Tensor dposition, dtime;             // f32

  std::vector<Gemm> products;  // in the order of `Product`
  enum Product { kScores, kOut, kDv, kDa, kDk, kDq, kMapOut, kMapDv, kMapDa };

  State(const Context& ctx_in, const PaddedProblem& problem_in)
      : ctx(ctx_in),
        problem(problem_in),
        B(static_cast<std::int64_t>(problem.lengths.size())),
        S(*std::max_element(problem.lengths.begin(), problem.lengths.end())),
        H(problem.heads),
        d(problem.head_dim) {
    for (const std::int64_t length : problem.lengths) offsets.push_back(offsets.back() + length);
    const DType t = problem.dtype;
    for (Tensor* tensor : {&q, &k, &v, &dout_latent}) *tensor = Tensor(t, {B * H, S, d});
    for (Tensor* tensor : {&scores, &a}) *tensor = Tensor(t, {B * H, S, S});
    out = Tensor(t, {B * H, S, d});
    for (Tensor* tensor : {&dq, &dk, &dv}) *tensor = Tensor(DType::kF32, {B * H, S, d});
    if (problem.with_time) buckets = Tensor(DType::kU8, {B, S, S});
    if (problem.fuxi) {
      for (Tensor* tensor : {&v_wide, &dout_pos, &dout_time, &out_pos, &out_time}) {
        *tensor = Tensor(t, {B, S, H * d});
      }
      for (Tensor* tensor : {&pos_map, &time_map}) *tensor = Tensor(t, {B, S, S});
      for (Tensor* tensor : {&dpos_map, &dtime_map}) *tensor = Tensor(DType::kF32, {B, S, S});
      for (Tensor* tensor : {&dv_pos, &dv_time}) *tensor = Tensor(DType::kF32, {B, S, H * d});
    } else if (problem.with_position || problem.with_time) {
      bias = Tensor(DType::kF32, {B, S, S});
    }
    const auto add = [&](GemmShape shape) {
      shape.dtype = t;
      products.emplace_back(shape, ctx);
    };
    add({.batch = B * H, .m = S, .n = S, .k = d, .transpose_b = true, .out = t});
    add({.batch = B * H, .m = S, .n = d, .k = S, .out = t});
    add({.batch = B * H, .m = S, .n = d, .k = S, .transpose_a = true});
    add({.batch = B * H, .m = S, .n = S, .k = d, .transpose_b = true, .out = t});
    add({.batch = B * H, .m = S, .n = d, .k = S, .transpose_a = true});
    add({.batch = B * H, .m = S, .n = d, .k = S});
    if (problem.fuxi) {
      add({.batch = B, .m = S, .n = H * d, .k = S, .out = t});
      add({.batch = B, .m = S, .n = H * d, .k = S, .transpose_a = true});
      add({.batch = B, .m = S, .n = S, .k = H * d, .transpose_b = true});
    }
  }

  void product(Product which, const Tensor& x, const Tensor& y, Tensor& z) const {
    products[which].run(x.data(), y.data(), z.data());
  }

  template <class Body>
  void over_rows(Body&& body) {  // body(b, i, worker) for every padded row
    parallel_ranges(ctx.pool(), B * S, 16, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t row = begin; row < end; ++row) body(row / S, row % S, worker);
    });
  }

  // The bucket of every pair, walking along the row: neighbours are mostly in the same bucket.
  void fill_buckets(std::int64_t b, std::int64_t i) {
    auto* row = reinterpret_cast<std::uint8_t*>(buckets.data()) + (b * S + i) * S;
    const std::int64_t length = problem.lengths[static_cast<std::size_t>(b)];
    std::memset(row, 0, static_cast<std::size_t>(S));
    if (i >= length) return;
    const std::int64_t first = offsets[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; j <= i; ++j) {
      row[j] = static_cast<std::uint8_t>(
          ops::time_bucket(query_times[static_cast<std::size_t>(first + i)],
                           key_times[static_cast<std::size_t>(first + j)]));
    }
  }

  float position_weight(std::int64_t i, std::int64_t j) const {
    return floats(position)[(position.size() - 1) / 2 + j - i];
  }

  void make_maps() {
    over_rows([&](std::int64_t b, std::int64_t i, int) {
      if (problem.with_time) fill_buckets(b, i);
      const auto* bucket = reinterpret_cast<const std::uint8_t*>(buckets.data()) + (b * S + i) * S;
      if (problem.fuxi) {
        const std::int64_t visible = i < problem.lengths[static_cast<std::size_t>(b)] ? i + 1 : 0;
        for (std::int64_t j = 0; j < S; ++j) {
          const bool seen = j < visible;
          set(pos_map, (b * S + i) * S + j,
              seen && problem.with_position ? position_weight(i, j) : 0.0f);
          set(time_map, (b * S + i) * S + j,
              seen && problem.with_time ? floats(time)[bucket[j]] : 0.0f);
        }
      } else if (bias.size() > 0) {
        float* row = floats(bias) + (b * S + i) * S;
        for (std::int64_t j = 0; j < S; ++j) {
          row[j] = (problem.with_position ? position_weight(i, j) : 0.0f) +
                   (problem.with_time ? floats(time)[bucket[j]] : 0.0f);
        }
      }
    });
  }

  static void set(Tensor& tensor, std::int64_t i, float value) {
    if (tensor.dtype() == DType::kBf16) {
      reinterpret_cast<bf16*>(tensor.data())[i] = bf16(value);
    } else {
      floats(tensor)[i] = value;
    }
  }

  const float* bias_row(std::int64_t b, std::int64_t i) const {
    return bias.size() > 0 ? floats(bias) + (b * S + i) * S : nullptr;
  }

  // Zeroes what row i of sequence b must not see, as multiplying by a mask does.
  void mask_row(Tensor& map, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t visible = i < problem.lengths[static_cast<std::size_t>(b)] ? i + 1 : 0;
    std::memset(at(map, ((b * H + h) * S + i) * S + visible), 0,
                static_cast<std::size_t>(S - visible) * size_of(map.dtype()));
  }

  void forward() {
    make_maps();
    product(kScores, q, k, scores);
    const PaddedTable& table = padded_table(ctx.simd());
    const auto scale = static_cast<float>(1.0 / problem.norm_length);
    over_rows([&](std::int64_t b, std::int64_t i, int) {
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t row = ((b * H + h) * S + i) * S;
        if (problem.dtype == DType::kBf16) {
          table.silu_bf16(reinterpret_cast<bf16*>(at(scores, row)), bias_row(b, i), scale, S,
                          reinterpret_cast<bf16*>(at(a, row)));
        } else {
          table.silu_f32(floats(scores) + row, bias_row(b, i), scale, S, floats(a) + row);
        }
        mask_row(a, b, h, i);
      }
    });
    product(kOut, a, v, out);
    if (problem.fuxi) {
      product(kMapOut, pos_map, v_wide, out_pos);
      product(kMapOut, time_map, v_wide, out_time);
    }
  }

  void backward() {
    product(kDv, a, dout_latent, dv);
    product(kDa, dout_latent, v, a);  // a's values are spent
    const PaddedTable& table = padded_table(ctx.simd());
    const auto scale = static_cast<float>(1.0 / problem.norm_length);
    const bool bias_gradients = !problem.fuxi && bias.size() > 0;
    // One [S] row of summed gradients and one set of bins a worker.
    std::vector<std::vector<float>> sums(static_cast<std::size_t>(ctx.threads()),
                                         std::vector<float>(static_cast<std::size_t>(S)));
    reset_bins();
    over_rows([&](std::int64_t b, std::int64_t i, int worker) {
      std::vector<float>& sum = sums[static_cast<std::size_t>(worker)];
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t row = ((b * H + h) * S + i) * S;
        float* into = bias_gradients ? sum.data() : nullptr;
        mask_row(a, b, h, i);
        if (problem.dtype == DType::kBf16) {
          table.silu_backward_bf16(reinterpret_cast<bf16*>(at(scores, row)), bias_row(b, i), scale,
                                   S, reinterpret_cast<bf16*>(at(a, row)), into);
        } else {
          table.silu_backward_f32(floats(scores) + row, bias_row(b, i), scale, S, floats(a) + row,
                                  into);
        }
      }
      if (bias_gradients) add_to_bins(b, i, sum.data(), sum.data(), worker);
    });
    product(kDk, a, q, dk);
    product(kDq, a, k, dq);
    if (problem.fuxi) {
      product(kMapDv, pos_map, dout_pos, dv_pos);
      product(kMapDv, time_map, dout_time, dv_time);
      product(kMapDa, dout_pos, v_wide, dpos_map);
      product(kMapDa, dout_time, v_wide, dtime_map);
      over_rows([&](std::int64_t b, std::int64_t i, int worker) {
        add_to_bins(b, i, floats(dpos_map) + (b * S + i) * S, floats(dtime_map) + (b * S + i) * S,
                    worker);
      });
    }
    gather_bins();
  }

  // Table gradients, one copy a worker.
  std::vector<std::vector<float>> position_bins, time_bins;

  void reset_bins() {
    const auto workers = static_cast<std::size_t>(ctx.threads());
    position_bins.resize(workers);
    time_bins.resize(workers);
    for (auto& bins : position_bins) bins.assign(static_cast<std::size_t>(position.size()), 0.0f);
    for (auto& bins : time_bins) bins.assign(kBuckets, 0.0f);
  }

  void add_to_bins(std::int64_t b, std::int64_t i, const float* by_position, const float* by_time,
                   int worker) {
    if (i >= problem.lengths[static_cast<std::size_t>(b)]) return;
    if (problem.with_position) {
      float* bins =
          position_bins[static_cast<std::size_t>(worker)].data() + (position.size() - 1) / 2 - i;
      for (std::int64_t j = 0; j <= i; ++j) bins[j] += by_position[j];
    }
    if (problem.with_time) {
      float* bins = time_bins[static_cast<std::size_t>(worker)].data();
      const auto* bucket = reinterpret_cast<const std::uint8_t*>(buckets.data()) + (b * S + i) * S;
      for (std::int64_t j = 0; j <= i; ++j) bins[bucket[j]] += by_time[j];
    }
  }

  void gather_bins() {
    std::memset(dposition.data(), 0, dposition.bytes());
    std::memset(dtime.data(), 0, dtime.bytes());
    for (std::size_t worker = 0; worker < position_bins.size(); ++worker) {
      for (std::int64_t i = 0; i < dposition.size(); ++i) {
        floats(dposition)[i] += position_bins[worker][static_cast<std::size_t>(i)];
      }
      for (std::int64_t i = 0; i < kBuckets; ++i) {
        floats(dtime)[i] += time_bins[worker][static_cast<std::size_t>(i)];
      }
    }
  }

  // Copies columns of a jagged [N, cols] tensor: for head h, the d columns from column(h).
  template <class Column>
  void spread(const Tensor& jagged, Column column, bool wide, Tensor& padded) {
    const std::int64_t cols = jagged.shape()[1];
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t first = offsets[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i < problem.lengths[static_cast<std::size_t>(b)]; ++i) {
        for (std::int64_t h = 0; h < H; ++h) {
          const std::int64_t target = wide ? ((b * S + i) * H + h) * d : ((b * H + h) * S + i) * d;
          std::memcpy(at(padded, target),
                      jagged.data() + static_cast<std::size_t>((first + i) * cols + column(h)) *
                                          size_of(jagged.dtype()),
                      static_cast<std::size_t>(d) * size_of(jagged.dtype()));
        }
      }
    }
  }

  template <class Column>
  void collect(const Tensor& padded, Column column, bool wide, Tensor& jagged) const {
    const std::int64_t cols = jagged.shape()[1];
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t first = offsets[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i < problem.lengths[static_cast<std::size_t>(b)]; ++i) {
        for (std::int64_t h = 0; h < H; ++h) {
          const std::int64_t source = wide ? ((b * S + i) * H + h) * d : ((b * H + h) * S + i) * d;
          for (std::int64_t c = 0; c < d; ++c) {
            floats(jagged)[(first + i) * cols + column(h) + c] +=
                static_cast<float>(read(padded, source + c));
          }
        }
      }
    }
  }

  Tensor collected(const Tensor& padded) const {
    Tensor jagged(DType::kF32, {offsets.back(), H * d});
    collect(
        padded, [&](std::int64_t h) { return h * d; }, false, jagged);
    return jagged;
  }
};

PaddedAttention::PaddedAttention(const Context& ctx, const PaddedProblem& problem)
    : state_(std::make_unique<State>(ctx, problem)) {}
PaddedAttention::~PaddedAttention() = default;

void PaddedAttention::set_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& position, const Tensor& time,
                                 const std::vector<std::int64_t>& key_times,
                                 const std::vector<std::int64_t>& query_times, const Tensor& dout) {
  State& s = *state_;
  const auto narrow = [&](std::int64_t h) { return h * s.d; };
  s.spread(q, narrow, false, s.q);
  s.spread(k, narrow, false, s.k);
  s.spread(v, narrow, false, s.v);
  if (s.problem.fuxi) {
    s.spread(v, narrow, true, s.v_wide);
    s.spread(
        dout, [&](std::int64_t h) { return 3 * h * s.d; }, true, s.dout_pos);
    s.spread(
        dout, [&](std::int64_t h) { return (3 * h + 1) * s.d; }, true, s.dout_time);
    s.spread(
        dout, [&](std::int64_t h) { return (3 * h + 2) * s.d; }, false, s.dout_latent);
  } else {
    s.spread(dout, narrow, false, s.dout_latent);
  }
  s.position = Tensor(DType::kF32, position.shape());
  s.time = Tensor(DType::kF32, time.shape());
  s.dposition = Tensor(DType::kF32, position.shape());
  s.dtime = Tensor(DType::kF32, time.shape());
  std::memcpy(s.position.data(), position.data(), position.bytes());
  std::memcpy(s.time.data(), time.data(), time.bytes());
  s.key_times = key_times;
  s.query_times = query_times;
}

void PaddedAttention::forward() { state_->forward(); }
void PaddedAttention::backward() { state_->backward(); }

Tensor PaddedAttention::out() const {
  const State& s = *state_;
  if (!s.problem.fuxi) return s.collected(s.out);
  Tensor jagged(DType::kF32, {s.offsets.back(), 3 * s.H * s.d});
  s.collect(
      s.out_pos, [&](std::int64_t h) { return 3 * h * s.d; }, true, jagged);
  s.collect(
      s.out_time, [&](std::int64_t h) { return (3 * h + 1) * s.d; }, true, jagged);
  s.collect(
      s.out, [&](std::int64_t h) { return (3 * h + 2) * s.d; }, false, jagged);
  return jagged;
}

Tensor PaddedAttention::dq() const { return state_->collected(state_->dq); }
Tensor PaddedAttention::dk() const { return state_->collected(state_->dk); }

Tensor PaddedAttention::dv() const {
  const State& s = *state_;
  Tensor jagged = s.collected(s.dv);
  if (s.problem.fuxi) {
    const auto narrow = [&](std::int64_t h) { return h * s.d; };
    s.collect(s.dv_pos, narrow, true, jagged);
    s.collect(s.dv_time, narrow, true, jagged);
  }
  return jagged;
}

Tensor PaddedAttention::dposition() const {
  Tensor copy(DType::kF32, state_->dposition.shape());
  std::memcpy(copy.data(), state_->dposition.data(), copy.bytes());
  return copy;
}

Tensor PaddedAttention::dtime() const {
  Tensor copy(DType::kF32, state_->dtime.shape());
  std::memcpy(copy.data(), state_->dtime.data(), copy.bytes());
  return copy;
}

std::size_t PaddedAttention::bytes() const {
  const State& s = *state_;
  std::size_t total = 0;
  for (const Tensor* tensor :
       {&s.q,         &s.k,         &s.v,    &s.dout_latent, &s.v_wide,  &s.dout_pos,
        &s.dout_time, &s.position,  &s.time, &s.bias,        &s.buckets, &s.pos_map,
        &s.time_map,  &s.scores,    &s.a,    &s.out,         &s.out_pos, &s.out_time,
        &s.dq,        &s.dk,        &s.dv,   &s.dv_pos,      &s.dv_time, &s.dpos_map,
        &s.dtime_map, &s.dposition, &s.dtime}) {
    total += tensor->bytes();
  }
  return total;
}

}  // namespace turbogr::bench
