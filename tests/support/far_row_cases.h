// What the ranking model's operators make of rows that lie apart (far_rows.h), on either device:
// the results, on the host.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/event_case.h"
#include "tests/support/far_rows.h"
#include "tests/support/on_device.h"
#include "turbogr/ops/attention/hstu_attention.h"
#include "turbogr/ops/attention/target_attention.h"
#include "turbogr/ops/dense/dropout.h"
#include "turbogr/ops/dense/gated_norm.h"
#include "turbogr/ops/dense/linear.h"
#include "turbogr/ops/dense/norm.h"
#include "turbogr/ops/dense/row_arithmetic.h"
#include "turbogr/ops/dense/swish_norm.h"
#include "turbogr/ops/rows/action_bits.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/event_input.h"
#include "turbogr/ops/rows/event_targets.h"
#include "turbogr/ops/rows/move_rows.h"
#include "turbogr/ops/rows/weighted_rows.h"

namespace turbogr::test {

using Outputs = std::vector<Tensor>;

inline constexpr std::int64_t kFarCols = 24;

template <class... Tensors>
Outputs outputs_of(Tensors... tensors) {
  Outputs outputs;
  (outputs.push_back(std::move(tensors)), ...);
  return outputs;
}

template <class T>
struct FarStatistics {
  Tensor mean, rstd;
  explicit FarStatistics(const Context& ctx)
      : mean(dtype_of<Accum<T>>(), {kFarRows}, ctx.device()),
        rstd(dtype_of<Accum<T>>(), {kFarRows}, ctx.device()) {}
  ops::NormStatistics<Accum<T>> written() {
    return {mean.view<Accum<T>, 1>(), rstd.view<Accum<T>, 1>()};
  }
  ops::NormStatistics<const Accum<T>> read() {
    return {mean.view<Accum<T>, 1>(), rstd.view<Accum<T>, 1>()};
  }
};

template <class T>
Outputs far_sums_and_products(const Context& ctx, Apart apart) {
  const auto given = [&](std::uint64_t seed) {
    return random_tensor<T>({kFarRows, kFarCols}, seed);
  };
  const ApartRows<T> a(ctx, apart, given(1)), b(ctx, apart, given(2)), dy(ctx, apart, given(3));
  const ApartRows<T> y(ctx, apart, kFarRows, kFarCols), da(ctx, apart, kFarRows, kFarCols),
      db(ctx, apart, kFarRows, kFarCols);
  ops::multiply_rows<T>(ctx, a.rows(), b.rows(), y.rows());
  ops::multiply_rows_backward<T>(ctx, a.rows(), b.rows(), dy.rows(), da.rows(), db.rows());
  ops::add_rows<T>(ctx, a.rows(), db.rows());
  ops::dropout<T>(ctx, y.rows(), {.rate = 0.5, .seed = 1}, y.rows());
  return outputs_of(y.values(), da.values(), db.values());
}

template <class T>
Outputs far_norms(const Context& ctx, Apart apart) {
  using A = Accum<T>;
  ctx.workspace().reserve(ops::norm_workspace_bytes<T>(ctx, kFarCols) +
                          ops::swish_norm_workspace_bytes<T>(ctx, kFarCols));
  const ApartRows<T> x(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 1)),
      dy(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 2));
  const Tensor weight = place(ctx, random_tensor<A>({kFarCols}, 3));
  const Tensor bias = place(ctx, random_tensor<A>({kFarCols}, 4));
  const ops::NormOptions<T> affine = {.weight = weight.view<A, 1>(), .bias = bias.view<A, 1>()};
  Tensor dweight(dtype_of<A>(), {kFarCols}, ctx.device());
  Tensor dbias(dtype_of<A>(), {kFarCols}, ctx.device());
  FarStatistics<T> saved(ctx);
  const ApartRows<T> y(ctx, apart, kFarRows, kFarCols), dx(ctx, apart, kFarRows, kFarCols);
  ops::norm<T>(ctx, x.rows(), affine, y.rows(), saved.written());
  ops::norm_backward<T>(ctx, x.rows(), dy.rows(), affine, saved.read(),
                        {.dx = dx.rows(),
                         .dweight = dweight.view<A, 1>(),
                         .dbias = dbias.view<A, 1>(),
                         .residual = dy.rows()});
  Outputs all = outputs_of(y.values(), dx.values());
  ops::swish_norm<T>(ctx, x.rows(), affine, y.rows(), saved.written());
  ops::swish_norm_backward<T>(
      ctx, x.rows(), dy.rows(), affine, saved.read(),
      {.dx = dx.rows(), .dweight = dweight.view<A, 1>(), .dbias = dbias.view<A, 1>()});
  for (Tensor& each :
       outputs_of(y.values(), dx.values(), to_host(ctx, dweight), to_host(ctx, dbias)))
    all.push_back(std::move(each));
  return all;
}

template <class T>
Outputs far_gates(const Context& ctx, Apart apart) {
  ctx.workspace().reserve(ops::gated_norm_workspace_bytes<T>(ctx, kFarCols));
  const ApartRows<T> x(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 1)),
      gate(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 2)),
      dy(ctx, apart, random_tensor<T>({kFarRows, 3 * kFarCols}, 3));
  const ops::GatedNormOptions<T> options = {
      .concat = true, .silu_gate = true, .dropout = {.rate = 0.1, .seed = 3}, .concat_input = true};
  FarStatistics<T> saved(ctx);
  const ApartRows<T> y(ctx, apart, kFarRows, 3 * kFarCols), dx(ctx, apart, kFarRows, kFarCols),
      dgate(ctx, apart, kFarRows, kFarCols);
  ops::gated_norm<T>(ctx, x.rows(), gate.rows(), options, y.rows(), saved.written());
  ops::gated_norm_backward<T>(ctx, x.rows(), gate.rows(), dy.rows(), options, saved.read(),
                              {.dx = dx.rows(), .dgate = dgate.rows()});
  return outputs_of(y.values(), dx.values(), dgate.values());
}

// Of so many outputs: a CPU has products of its own for few, a library's for many.
template <class T>
Outputs far_linear(const Context& ctx, Apart apart, std::int64_t outputs) {
  using A = Accum<T>;
  const ApartRows<T> x(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 1)),
      dy(ctx, apart, random_tensor<T>({kFarRows, outputs}, 2));
  const Tensor w = place(ctx, random_tensor<T>({kFarCols, outputs}, 3));
  const Tensor bias = place(ctx, random_tensor<A>({outputs}, 4));
  ops::PackedWeight<T> weight(ctx, kFarCols, outputs);
  ctx.workspace().reserve(ops::linear_workspace_bytes<T>(ctx, weight) +
                          ops::linear_backward_workspace_bytes<T>(ctx, weight, kFarRows));
  weight.pack(ctx, w.view<T, 2>());
  const ApartRows<T> y(ctx, apart, kFarRows, outputs), z(ctx, apart, kFarRows, outputs),
      dx(ctx, apart, kFarRows, kFarCols);
  Tensor dw(dtype_of<A>(), {kFarCols, outputs}, ctx.device());
  Tensor db(dtype_of<A>(), {outputs}, ctx.device());
  const auto activation = ops::Activation::kSilu;
  ops::linear<T>(ctx, x.rows(), weight,
                 {.bias = bias.view<A, 1>(), .activation = activation, .residual = dy.rows()},
                 y.rows(), z.rows());
  ops::linear_backward<T>(ctx, x.rows(), weight, dy.rows(),
                          {.activation = activation, .z = z.rows()},
                          {.dx = dx.rows(), .dw = dw.view<A, 2>(), .db = db.view<A, 1>()});
  return outputs_of(y.values(), z.values(), dx.values(), to_host(ctx, dw), to_host(ctx, db));
}

// Three sequences of 100 tokens, 10 of them targets, in the context's memory.
class FarEvents {
 public:
  FarEvents(const Context& ctx, std::int64_t prefix)
      : made_(case_of(prefix)),
        batch_(made_),
        offsets_(place(ctx, tensor_of(batch_.offsets))),
        targets_(place(ctx, tensor_of(batch_.num_targets))),
        times_(place(ctx, tensor_of(batch_.times))),
        masks_(DType::kU8, {made_.events() * 4}, ctx.device()) {
    Tensor host(DType::kU8, {made_.events() * 4});
    std::copy(batch_.masks.begin(), batch_.masks.end(),
              reinterpret_cast<std::uint32_t*>(host.data()));
    copy_tensor(ctx, masks_, host);
  }

  const EventCase& shape() const { return made_; }
  ops::EventSequences view() const {
    return {.offsets = offsets_.view<std::int64_t, 1>(),
            .num_prefix = made_.prefix,
            .num_targets = targets_.view<std::int64_t, 1>(),
            .times = times_.view<std::int64_t, 1>()};
  }
  View<const std::uint32_t, 1> masks() const {
    return {reinterpret_cast<const std::uint32_t*>(masks_.data()), {made_.events()}};
  }

 private:
  static EventCase case_of(std::int64_t prefix) {
    EventCase made;
    made.prefix = prefix;
    made.history.assign(3, 90 - prefix);
    made.targets.assign(3, 10);
    made.cols = kFarCols;
    made.positions = 120;
    made.buckets = 5;
    return made;
  }

  EventCase made_;
  EventBatch batch_;
  Tensor offsets_, targets_, times_, masks_;
};

template <class T>
Outputs far_event_input(const Context& ctx, Apart apart) {
  using A = Accum<T>;
  const FarEvents events(ctx, 2);
  const EventCase& c = events.shape();
  const EventInputs<T> given(c);
  const ApartRows<T> prefix(ctx, apart, given.prefix), tokens(ctx, apart, given.events),
      dx(ctx, apart, given.dx);
  const Tensor position = place(ctx, given.position), time = place(ctx, given.time);
  const ops::EventInputOptions options = {.scale = kEventScale,
                                          .dropout = {.rate = 0.2, .seed = 1}};
  ctx.workspace().reserve(ops::event_input_workspace_bytes<T>(ctx, kFarRows, kFarCols));
  const ApartRows<T> x(ctx, apart, c.tokens(), kFarCols),
      dprefix(ctx, apart, c.prefix_rows(), kFarCols), dtokens(ctx, apart, c.events(), kFarCols);
  Tensor dposition(dtype_of<A>(), {c.positions, kFarCols}, ctx.device());
  Tensor dtime(dtype_of<A>(), {c.buckets + 1, kFarCols}, ctx.device());
  ops::event_input<T>(ctx, events.view(), {prefix.rows(), tokens.rows()},
                      {position.view<A, 2>(), time.view<A, 2>()}, options, x.rows());
  ops::event_input_backward<T>(ctx, events.view(), dx.rows(), options,
                               {dprefix.rows(), dtokens.rows()},
                               {dposition.view<A, 2>(), dtime.view<A, 2>()});
  return outputs_of(x.values(), dprefix.values(), dtokens.values(), to_host(ctx, dposition),
                    to_host(ctx, dtime));
}

template <class T>
Outputs far_actions(const Context& ctx, Apart apart) {
  using A = Accum<T>;
  constexpr std::int64_t kBits = 3;
  const FarEvents events(ctx, 0);
  const Tensor table = place(ctx, random_tensor<A>({kBits, kFarCols / kBits}, 1));
  const Tensor target = place(ctx, random_tensor<A>({kFarCols}, 2));
  const ApartRows<T> drows(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 3));
  const ApartRows<T> rows(ctx, apart, kFarRows, kFarCols);
  Tensor dtable(dtype_of<A>(), table.shape(), ctx.device());
  Tensor dtarget(dtype_of<A>(), target.shape(), ctx.device());
  ctx.workspace().reserve(ops::action_bits_workspace_bytes<T>(ctx, kFarCols));
  ops::action_bits<T>(ctx, events.view(), {table.view<A, 2>(), target.view<A, 1>()}, events.masks(),
                      rows.rows());
  ops::action_bits_backward<T>(ctx, events.view(), events.masks(), drows.rows(),
                               {dtable.view<A, 2>(), dtarget.view<A, 1>()});
  return outputs_of(rows.values(), to_host(ctx, dtable), to_host(ctx, dtarget));
}

// Every third row leaves, and finds its way back.
template <class T>
Outputs far_targets(const Context& ctx, Apart apart) {
  std::vector<std::int64_t> which;
  for (std::int64_t row = 2; row < kFarRows; row += 3) which.push_back(row);
  const Tensor places = place(ctx, tensor_of(which));
  const View<const std::int64_t, 1> at = places.view<std::int64_t, 1>();
  const auto count = std::ssize(which);
  const ApartRows<T> all(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 3)),
      some(ctx, apart, random_tensor<T>({count, kFarCols}, 4)),
      added(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 5));
  const ApartRows<T> spread(ctx, apart, kFarRows, kFarCols), gathered(ctx, apart, count, kFarCols);
  ops::spread_rows<T>(ctx, some.rows(), at, spread.rows());
  ops::add_rows_at<T>(ctx, some.rows(), at, added.rows());
  ops::gather_rows<T, T>(ctx, all.rows(), at, gathered.rows());
  return outputs_of(spread.values(), added.values(), gathered.values());
}

template <class T>
Outputs far_attention(const Context& ctx, Apart apart) {
  constexpr int kHeads = 2;
  const auto matrix = [&](std::uint64_t seed) {
    return random_tensor<T>({kFarRows, kFarCols}, seed);
  };
  const auto placed = [&](const std::vector<std::int64_t>& values) {
    return place(ctx, tensor_of(values));
  };
  const Tensor tokens = placed({0, 100, 200, 300}), targets = placed({10, 10, 10}),
               prefix = placed({0, 0, 0});
  const Offsets offsets = tokens.view<std::int64_t, 1>();
  const ApartRows<T> q(ctx, apart, matrix(1)), k(ctx, apart, matrix(2)), v(ctx, apart, matrix(3)),
      dout(ctx, apart, matrix(4));
  const ApartRows<T> out(ctx, apart, kFarRows, kFarCols), dq(ctx, apart, kFarRows, kFarCols),
      dk(ctx, apart, kFarRows, kFarCols), dv(ctx, apart, kFarRows, kFarCols);
  const ops::HstuAttentionOptions options = {
      .heads = kHeads,
      .alpha = 0.3,
      .norm_length = 50,
      .mask = {.num_prefix = prefix.view<std::int64_t, 1>(),
               .num_targets = targets.view<std::int64_t, 1>()},
      .max_length = 100,
      .deterministic = true};
  const ops::AttentionShape shape = {.device = ctx.device(),
                                     .threads = ctx.threads(),
                                     .tokens = kFarRows,
                                     .batch = 3,
                                     .max_length = 100,
                                     .heads = kHeads,
                                     .query_width = kFarCols / kHeads,
                                     .value_width = kFarCols / kHeads,
                                     .tables = false,
                                     .masks = true,
                                     .deterministic = true};
  ctx.workspace().reserve(ops::hstu_attention_workspace_bytes<T>(shape) +
                          ops::hstu_attention_backward_workspace_bytes<T>(shape));
  ops::hstu_attention<T>(ctx, {q.rows(), offsets}, k.rows(), v.rows(), {}, options, out.rows());
  ops::hstu_attention_backward<T>(ctx, {q.rows(), offsets}, k.rows(), v.rows(), {}, options,
                                  dout.rows(), dq.rows(), dk.rows(), dv.rows(), {});
  return outputs_of(out.values(), dq.values(), dk.values(), dv.values());
}

// Of targets alone: those are few, the tokens that they see are far.
template <class T>
Outputs far_target_attention(const Context& ctx, Apart apart) {
  const auto matrix = [&](std::int64_t rows, std::uint64_t seed) {
    return random_tensor<T>({rows, kFarCols}, seed);
  };
  const Tensor tokens = place(ctx, tensor_of(std::vector<std::int64_t>{0, 100, 200, 300})),
               targets = place(ctx, tensor_of(std::vector<std::int64_t>{0, 10, 20, 30}));
  const ops::TargetSequences sequences = {tokens.view<std::int64_t, 1>(),
                                          targets.view<std::int64_t, 1>()};
  const ops::TargetAttentionOptions options = {.heads = 2, .alpha = 0.3, .norm_length = 50};
  const ApartRows<T> q(ctx, apart, matrix(30, 1)), k(ctx, apart, matrix(kFarRows, 2)),
      v(ctx, apart, matrix(kFarRows, 3)), dout(ctx, apart, matrix(30, 4));
  const ApartRows<T> out(ctx, apart, 30, kFarCols), dq(ctx, apart, 30, kFarCols),
      dk(ctx, apart, kFarRows, kFarCols), dv(ctx, apart, kFarRows, kFarCols);
  ops::target_attention<T>(ctx, sequences, q.rows(), k.rows(), v.rows(), options, out.rows());
  ops::target_attention_backward<T>(ctx, sequences, q.rows(), k.rows(), v.rows(), options,
                                    dout.rows(), dq.rows(), dk.rows(), dv.rows());
  return outputs_of(out.values(), dq.values(), dk.values(), dv.values());
}

template <class T>
Outputs far_moves(const Context& ctx, Apart apart) {
  std::vector<std::int32_t> from_the_last(kFarRows);
  for (std::size_t i = 0; i < from_the_last.size(); ++i) {
    from_the_last[i] = static_cast<std::int32_t>(from_the_last.size() - 1 - i);
  }
  const Tensor backwards = place(ctx, tensor_of(from_the_last));
  const View<const std::int32_t, 1> places = backwards.view<std::int32_t, 1>();
  const ApartRows<T> rows(ctx, apart, random_tensor<T>({kFarRows, kFarCols}, 1));
  const ApartRows<T> placed(ctx, apart, kFarRows, kFarCols), moved(ctx, apart, kFarRows, kFarCols);
  ops::place_rows<T>(ctx, rows.rows(), places, placed.rows());
  ops::move_rows<T, T>(ctx, rows.rows(), places, moved.rows(), places);

  // Two and two: ids 0, 0, 1, 1, ...
  std::vector<std::int64_t> unique(kFarRows / 2), starts(kFarRows / 2 + 1);
  for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<std::int64_t>(2 * i);
  for (std::size_t i = 0; i < unique.size(); ++i) unique[i] = static_cast<std::int64_t>(i);
  const Tensor ids = place(ctx, tensor_of(unique)), offsets = place(ctx, tensor_of(starts));
  const ops::IdGroups groups = {ids.view<std::int64_t, 1>(), offsets.view<std::int64_t, 1>(),
                                places};
  ctx.workspace().reserve(ops::sum_groups_workspace_bytes<T>(ctx, kFarRows, kFarCols) +
                          ops::sum_weighted_rows_workspace_bytes(ctx, kFarRows, kFarCols));
  const ApartRows<float> sums(ctx, apart, kFarRows / 2, kFarCols),
      table(ctx, apart, kFarRows, kFarCols), picked(ctx, apart, kFarRows / 2, kFarCols);
  ops::sum_duplicate_rows<T>(ctx, rows.rows(), groups, sums.rows());
  ops::scatter_add_rows<T>(ctx, rows.rows(), groups, table.rows());
  const Tensor halves = place(ctx, tensor_of(std::vector<float>(kFarRows, 0.5f)));
  ops::sum_weighted_rows<T, float>(
      ctx, rows.rows(), {offsets.view<std::int64_t, 1>(), places, halves.view<float, 1>()},
      picked.rows());
  return outputs_of(placed.values(), moved.values(), sums.values(), table.values(),
                    picked.values());
}

}  // namespace turbogr::test
