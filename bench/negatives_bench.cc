#include "bench/negatives_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "bench/materialised_softmax.h"
#include "bench/materialised_softmax_cuda.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/embedding/row_prefetch.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/random_rows.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::bench {
namespace {

constexpr int kLeastRuns = 3;
// Of the largest value; the baseline rounds unit rows and their gradients to its format.
template <class T>
constexpr double kAllowedError = std::is_same_v<T, bf16> ? 0.03 : 1e-4;

template <class T>
using Baseline =
    std::conditional_t<std::is_same_v<T, bf16>, MaterialisedSoftmaxCuda, MaterialisedSoftmax>;

// Inputs and outputs that every path has, on the context's device. On a CPU the items' rows are the
// table; on a GPU they are gathered from a table in f32 that is on the device or, offloaded, in
// host memory.
template <class T>
struct Buffers {
  const Context& ctx;
  NegativesProblem problem;
  Tensor query, items, positive, negatives, dloss, ids;
  Tensor loss, log_sum_exp, dquery, ditems;
  Tensor table, host_table;  // f32
  std::unique_ptr<embedding::RowPrefetch<T>> prefetch;
  embedding::TouchedRows touched;

  Buffers(const Context& ctx_in, const NegativesProblem& problem_in)
      : ctx(ctx_in),
        problem(problem_in),
        query(random(problem.tokens, 1)),
        items(random(problem.items, 2)),
        positive(indices({problem.tokens}, 3)),
        negatives(indices({problem.tokens, problem.negatives}, 4)),
        dloss(DType::kF32, {problem.tokens}, ctx.device()),
        ids(DType::kI64, {problem.items}),
        loss(DType::kF32, {problem.tokens}, ctx.device()),
        log_sum_exp(DType::kF32, {problem.tokens}, ctx.device()),
        dquery(dtype_of<T>(), {problem.tokens, problem.width}, ctx.device()),
        ditems(DType::kF32, {problem.items, problem.width}, ctx.device()),
        touched(problem.items) {
    ops::fill<float>(ctx, 1.0f / static_cast<float>(problem.tokens), dloss.view<float, 1>());
    std::iota(ids.view<std::int64_t, 1>().data, ids.view<std::int64_t, 1>().data + problem.items,
              std::int64_t{0});
    if (!on_gpu()) return;
    ids = on_device(std::move(ids));
    table = random_f32(problem.items, 2);
    host_table = Tensor(DType::kF32, {problem.items, problem.width}, Device::kPinned);
    copy_tensor(ctx, host_table, table);
    prefetch = std::make_unique<embedding::RowPrefetch<T>>(ctx, problem.items, problem.width);
    const Tensor all = to_host(ctx, ids);
    touched.mark(ctx.host(), all.view<std::int64_t, 1>());
    touched.number(ctx.host());
  }

  bool on_gpu() const { return ctx.device() == Device::kCuda; }
  Tensor on_device(Tensor host) const {
    if (!on_gpu()) return host;
    Tensor device(host.dtype(), host.shape(), ctx.device());
    copy_tensor(ctx, device, host);
    return device;
  }
  Tensor random_f32(std::int64_t rows, std::uint64_t stream) const {
    Tensor tensor(DType::kF32, {rows, problem.width}, ctx.device());
    ops::random_rows(ctx, tensor.view<float, 2>(), 0, problem.seed * 16 + stream, 1.0);
    synchronize(ctx);
    return tensor;
  }
  Tensor random(std::int64_t rows, std::uint64_t stream) const {
    Tensor full = random_f32(rows, stream);
    if constexpr (std::is_same_v<T, float>) {
      return full;
    } else {
      Tensor tensor(dtype_of<T>(), full.shape(), ctx.device());
      ops::convert_values<T, float>(
          ctx, {std::as_const(full).template view<float, 2>().data, {full.size()}},
          {tensor.template view<T, 2>().data, {full.size()}});
      synchronize(ctx);
      return tensor;
    }
  }
  Tensor indices(std::vector<std::int64_t> shape, std::uint64_t stream) const {
    Tensor tensor(DType::kI32, std::move(shape));
    PhiloxStream numbers(problem.seed, stream);
    auto* data = reinterpret_cast<std::int32_t*>(tensor.data());
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      data[i] = static_cast<std::int32_t>(numbers.below(static_cast<std::uint64_t>(problem.items)));
    }
    return on_device(std::move(tensor));
  }

  ops::SampledSoftmaxInputs<T> inputs(bool shared) const {
    ops::SampledSoftmaxInputs<T> in;
    in.query = query.view<T, 2>();
    in.items = items.view<T, 2>();
    in.positive = positive.view<std::int32_t, 1>();
    if (shared) {
      in.shared_negatives = {negatives.view<std::int32_t, 2>().data, {problem.negatives}};
    } else {
      in.negatives = negatives.view<std::int32_t, 2>();
    }
    return in;
  }
  // Without the negatives' indices and the log-sum-exps, which not all paths have, and without a
  // table.
  std::size_t common_bytes() const {
    return query.bytes() + items.bytes() + positive.bytes() + dloss.bytes() + loss.bytes() +
           dquery.bytes() + ditems.bytes();
  }
  std::size_t fused_bytes(bool shared) const {
    const auto set = static_cast<std::size_t>(problem.negatives) * sizeof(std::int32_t);
    return common_bytes() + log_sum_exp.bytes() + (shared ? set : negatives.bytes()) +
           workspace_bytes(shared);
  }
  std::size_t workspace_bytes(bool shared) const {
    return ops::softmax_workspace_bytes(ctx, problem.tokens, problem.items, problem.width,
                                        shared ? 0 : problem.negatives);
  }

  void gather() {
    if (!on_gpu()) return;
    if constexpr (!std::is_same_v<T, double>) {
      ops::gather_rows<float, T>(ctx, table.view<float, 2>(), ids.view<std::int64_t, 1>(),
                                 items.view<T, 2>());
    }
  }
  void run_loss(bool shared) {
    zero_bytes(ctx, ditems.data(), ditems.bytes());
    ops::sampled_softmax_with_gradients<T>(ctx, inputs(shared), {},
                                           std::as_const(dloss).template view<float, 1>(),
                                           {loss.view<float, 1>(), log_sum_exp.view<float, 1>()},
                                           dquery.view<T, 2>(), ditems.view<float, 2>());
  }
  void run_fused(bool shared) {
    gather();
    run_loss(shared);
    synchronize(ctx);
  }
  // All rows come over the link, and nothing else is there for the copies to hide behind.
  void run_offload() {
    const embedding::RowCache none(ctx, 0, 0, embedding::SparseOptimiser::kSgd, {});
    prefetch->fetch(ctx, host_table.view<float, 2>(), none, nullptr, touched, items.view<T, 2>());
    prefetch->arrive(ctx);
    run_loss(false);
    prefetch->release(ctx);
    synchronize(ctx);
  }
  void run_materialised(Baseline<T>& baseline) {
    gather();
    zero_bytes(ctx, ditems.data(), ditems.bytes());
    baseline.forward_backward(ctx, inputs(false), {},
                              std::as_const(dloss).template view<float, 1>(), loss.view<float, 1>(),
                              dquery.view<T, 2>(), ditems.view<float, 2>());
    synchronize(ctx);
  }
};

double value_at(const Tensor& tensor, std::int64_t i) {
  return tensor.dtype() == DType::kBf16
             ? convert<double>(reinterpret_cast<const bf16*>(tensor.data())[i])
             : convert<double>(reinterpret_cast<const float*>(tensor.data())[i]);
}

void expect_same(const char* name, const Tensor& ours, const Tensor& baseline, double allowed) {
  double largest = 0;
  double error = 0;
  for (std::int64_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(value_at(baseline, i)));
    const double gap = std::abs(value_at(ours, i) - value_at(baseline, i));
    if (!(gap <= error)) error = gap;  // a NaN sticks
  }
  TGR_CHECK(error <= allowed * largest, "bench negatives: ", name, " is off by ", error,
            " where values reach ", largest, "; a timing of wrong answers is worth nothing");
}

struct Results {
  Tensor loss, dquery, ditems;

  template <class T>
  explicit Results(const Buffers<T>& b)
      : loss(to_host(b.ctx, b.loss)),
        dquery(to_host(b.ctx, b.dquery)),
        ditems(to_host(b.ctx, b.ditems)) {}
  void expect_like(const Results& other, double allowed) const {
    expect_same("loss", loss, other.loss, allowed);
    expect_same("query gradient", dquery, other.dquery, allowed);
    expect_same("item gradient", ditems, other.ditems, allowed);
  }
};

template <class T>
std::size_t baseline_bytes(const Context& ctx, const SoftmaxSize& size) {
  if constexpr (std::is_same_v<T, bf16>) {
    return MaterialisedSoftmaxCuda::bytes(ctx, size);
  } else {
    return MaterialisedSoftmax::bytes(size);
  }
}

template <class T>
std::vector<NegativesFigures> measure(const Context& ctx, const NegativesProblem& problem,
                                      double seconds) {
  Buffers<T> buffers(ctx, problem);
  ctx.workspace().reserve(std::max(buffers.workspace_bytes(false), buffers.workspace_bytes(true)));
  const std::size_t table = buffers.table.bytes();
  NegativesFigures fused = {"fused", {}, buffers.fused_bytes(false) + table};
  NegativesFigures shared = {"shared", {}, buffers.fused_bytes(true) + table};
  const auto run_fused = [&] { buffers.run_fused(false); };

  const SoftmaxSize size = {problem.tokens, problem.negatives, problem.items, problem.width};
  NegativesFigures baseline = {
      "materialised",
      {},
      buffers.common_bytes() + buffers.negatives.bytes() + table + baseline_bytes<T>(ctx, size)};
  if (baseline.peak_bytes <= problem.memory) {
    Baseline<T> softmax(ctx, size);
    run_fused();
    const Results ours(buffers);
    buffers.run_materialised(softmax);
    ours.expect_like(Results(buffers), kAllowedError<T>);
    const auto [our_time, baseline_time] = time_in_turn(
        run_fused, [&] { buffers.run_materialised(softmax); }, seconds, kLeastRuns);
    fused.timing = our_time;
    baseline.timing = baseline_time;
  } else {
    fused.timing = time_in_turn(
                       run_fused, [] {}, seconds, kLeastRuns)
                       .first;
  }
  shared.timing = time_in_turn([&] { buffers.run_fused(true); }, [] {}, seconds, kLeastRuns).first;
  std::vector<NegativesFigures> all = {fused, baseline, shared};
  if (buffers.on_gpu()) {
    NegativesFigures offload = {
        "offload", {}, buffers.fused_bytes(false) + buffers.prefetch->bytes().gpu};
    run_fused();
    const Results ours(buffers);
    buffers.run_offload();
    ours.expect_like(Results(buffers), 0.0);
    offload.timing = time_in_turn([&] { buffers.run_offload(); }, [] {}, seconds, kLeastRuns).first;
    all.push_back(offload);
  }
  return all;
}

}  // namespace

std::size_t available_bytes(const Context& ctx) {
  if (ctx.device() == Device::kCuda) return device_memory().free;
  return available_host_memory();
}

std::vector<NegativesFigures> measure_negatives(const Context& ctx, const NegativesProblem& problem,
                                                double seconds) {
  if constexpr (kWithCuda) {
    if (ctx.device() == Device::kCuda) return measure<bf16>(ctx, problem, seconds);
  }
  return measure<float>(ctx, problem, seconds);
}

}  // namespace turbogr::bench
