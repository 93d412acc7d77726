// Operators over rows. The padded baseline is the operator itself on sequences x longest rows, and
// the answer is checked against the f64 instantiation on the first rows before anything is timed.
//
// A Run<T> is one operator with buffers of its own:
//
//   Run(const Context& ctx, const Batch& batch);
//   Buffers buffers;
//   std::size_t scratch_bytes;
//   void forward();   Work forward_work() const;     // and / or
//   void backward();  Work backward_work() const;
//   double error();                                  // optional: instead of the f64 run
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <utility>

#include "bench/numbers.h"
#include "bench/op_case.h"

namespace turbogr::bench {

// What one run works on.
struct Batch {
  OpProblem problem;
  DType dtype = DType::kF32;  // inputs hold values of this format, in the f64 run too
  bool padded = false;

  std::int64_t rows() const { return padded ? problem.padded_tokens() : problem.tokens(); }
  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> offsets = problem.offsets();
    for (std::size_t b = 1; padded && b < offsets.size(); ++b) {
      offsets[b] = offsets[b - 1] + problem.longest();
    }
    return offsets;
  }
};

// The tensors of a run, at addresses that stay.
class Buffers {
 public:
  enum class Role : std::uint8_t { kInput, kRows, kSum };
  struct Entry {
    Tensor tensor;
    Role role;
  };

  explicit Buffers(const Batch& batch) : dtype_(batch.dtype), seed_(batch.problem.seed) {}

  // Uniform numbers of deviation `scale`; a smaller tensor begins like a larger one.
  template <class T>
  View<T, 2> input(std::int64_t rows, std::int64_t cols, double scale = 1) {
    Tensor& tensor = add<T>({rows, cols}, Role::kInput);
    fill<T>(tensor, dtype_, scale, 0);
    return tensor.view<T, 2>();
  }
  // Vectors stay f32 when matrices are bf16.
  template <class A>
  View<A, 1> input_vector(std::int64_t size, double scale = 1, double centre = 0) {
    Tensor& tensor = add<A>({size}, Role::kInput);
    fill<A>(tensor, DType::kF32, scale, centre);
    return tensor.view<A, 1>();
  }
  template <class Index>
  View<Index, 1> indices(std::int64_t size, std::int64_t bound) {
    Tensor& tensor = add<Index>({size}, Role::kInput);
    PhiloxStream random(next_seed());
    const View<Index, 1> view = tensor.view<Index, 1>();
    for (std::int64_t i = 0; i < size; ++i) {
      view(i) = static_cast<Index>(random.below(static_cast<std::uint64_t>(bound)));
    }
    return view;
  }
  // Overwritten by every call, row i from row i of the inputs.
  template <class T>
  View<T, 2> output(std::int64_t rows, std::int64_t cols) {
    return add<T>({rows, cols}, Role::kRows).template view<T, 2>();
  }
  template <class A>
  View<A, 1> output_vector(std::int64_t rows) {
    return add<A>({rows}, Role::kRows).template view<A, 1>();
  }
  // Gradients of parameters: every call adds.
  template <class A>
  View<A, 2> sum(std::int64_t rows, std::int64_t cols) {
    return add<A>({rows, cols}, Role::kSum).template view<A, 2>();
  }
  template <class A>
  View<A, 1> sum_vector(std::int64_t size) {
    return add<A>({size}, Role::kSum).template view<A, 1>();
  }

  std::deque<Entry>& entries() { return entries_; }
  std::size_t bytes() const {
    std::size_t total = 0;
    for (const Entry& entry : entries_) total += entry.tensor.bytes();
    return total;
  }
  // What a call does not write must show.
  void poison() {
    for (Entry& entry : entries_) {
      if (entry.role == Role::kInput) continue;
      std::memset(entry.tensor.data(), entry.role == Role::kRows ? 0xff : 0, entry.tensor.bytes());
    }
  }

 private:
  template <class T>
  Tensor& add(std::vector<std::int64_t> shape, Role role) {
    entries_.push_back({Tensor(dtype_of<T>(), std::move(shape)), role});
    return entries_.back().tensor;
  }
  std::uint64_t next_seed() { return seed_ + 1000 * entries_.size(); }

  template <class T>
  void fill(Tensor& tensor, DType rounded, double scale, double centre) {
    PhiloxStream random(next_seed());
    T* data = reinterpret_cast<T*>(tensor.data());
    const double spread = scale * std::sqrt(12.0);
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto value = static_cast<float>(centre + spread * (random.next_u32() * 0x1p-32 - 0.5));
      data[i] = convert<T>(rounded == DType::kBf16 ? static_cast<float>(bf16(value)) : value);
    }
  }

  DType dtype_;
  std::uint64_t seed_;
  std::deque<Entry> entries_;
};

struct Work {
  double flops = 0;
  double bytes = 0;
};

// Relative errors allowed, beside the f64 run on the same inputs.
struct Allowed {
  double f32 = 1e-4;
  double bf16 = 2e-2;
};

template <class Run>
void run_all(Run& run) {
  if constexpr (requires { run.forward(); }) run.forward();
  if constexpr (requires { run.backward(); }) run.backward();
}

// The timed buffers' first rows, and the sums of a run on those rows alone, against f64.
template <template <class> class Run, class T>
double error_beside_f64(const Context& ctx, const OpProblem& problem, Run<T>& timed) {
  constexpr std::int64_t kRows = 64;
  const Batch few{problem.first_tokens(kRows), dtype_of<T>()};
  Run<T> same(ctx, few);
  Run<double> exact(ctx, few);
  for (Run<T>* run : {&timed, &same}) {
    run->buffers.poison();
    run_all(*run);
  }
  run_all(exact);
  double worst = 0;
  for (std::size_t i = 0; i < exact.buffers.entries().size(); ++i) {
    const auto& [wanted, role] = exact.buffers.entries()[i];
    if (role == Buffers::Role::kInput) continue;
    worst = std::max(worst, relative_error(same.buffers.entries()[i].tensor, wanted));
    if (role == Buffers::Role::kSum) continue;
    worst = std::max(worst, relative_error(timed.buffers.entries()[i].tensor, wanted));
  }
  return worst;
}

template <template <class> class Run, class T>
std::vector<OpCase> row_cases(const char* op, const Context& ctx, const OpProblem& problem,
                              Allowed allowed) {
  const DType dtype = dtype_of<T>();
  auto ours = std::make_shared<Run<T>>(ctx, Batch{problem, dtype});
  auto padded = std::make_shared<Run<T>>(ctx, Batch{problem, dtype, true});
  const auto error = computed_once([problem, ours] {
    if constexpr (requires { ours->error(); }) {
      return ours->error();
    } else {
      return error_beside_f64<Run, T>(ours->ctx, problem, *ours);
    }
  });
  std::vector<OpCase> cases;
  const auto add = [&](const char* direction, Work work, auto body) {
    OpCase one;
    one.op = op;
    one.direction = direction;
    one.dtype = dtype;
    one.flops = work.flops;
    one.bytes = work.bytes;
    one.peak_bytes = ours->buffers.bytes() + ours->scratch_bytes;
    one.padded_bytes = padded->buffers.bytes() + padded->scratch_bytes;
    one.run = [ours, body] { body(*ours); };
    one.run_padded = [padded, body] { body(*padded); };
    one.error = error;
    one.allowed_error = dtype == DType::kBf16 ? allowed.bf16 : allowed.f32;
    cases.push_back(std::move(one));
  };
  constexpr bool kForward = requires(Run<T> run) { run.forward(); };
  constexpr bool kBackward = requires(Run<T> run) { run.backward(); };
  if constexpr (kForward) {
    add("forward", ours->forward_work(), [](Run<T>& run) { run.forward(); });
  }
  if constexpr (kBackward) {
    run_all(*padded);  // backward reads what forward saved
    add("backward", ours->backward_work(), [](Run<T>& run) { run.backward(); });
  }
  if constexpr (kForward && kBackward) {
    const Work there = ours->forward_work();
    const Work back = ours->backward_work();
    add("both", {there.flops + back.flops, there.bytes + back.bytes},
        [](Run<T>& run) { run_all(run); });
  }
  return cases;
}

template <template <class> class Run>
OpFamily row_family(const char* op, Allowed allowed = {}) {
  return {op, [op, allowed](const Context& ctx, const OpProblem& problem, DType dtype) {
            return dtype == DType::kBf16 ? row_cases<Run, bf16>(op, ctx, problem, allowed)
                                         : row_cases<Run, float>(op, ctx, problem, allowed);
          }};
}

}  // namespace turbogr::bench
