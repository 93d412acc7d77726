// Sequences of a ranking model for tests, and event_input and action_bits as their definitions say
// them, in any format.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/data.h"
#include "turbogr/core/philox.h"
#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/rows/action_bits.h"
#include "turbogr/ops/rows/event_input.h"

namespace turbogr::test {

inline constexpr double kEventStart = 0.5;  // what parameter gradients are added to
inline constexpr double kEventScale = 3.5;

struct EventCase {
  std::int64_t prefix = 0;
  std::vector<std::int64_t> history, targets;
  std::int64_t cols = 8, positions = 9, buckets = 6;  // buckets: T, one less than the table's rows
  ops::DropoutOptions dropout = {};
  ops::TimeBuckets kind = ops::TimeBuckets::kSquareRoot;

  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> lengths;
    for (std::size_t b = 0; b < history.size(); ++b) {
      lengths.push_back(prefix + history[b] + targets[b]);
    }
    return offsets_of(lengths);
  }
  std::int64_t tokens() const { return offsets().back(); }
  std::int64_t prefix_rows() const { return prefix * std::ssize(history); }
  std::int64_t events() const { return tokens() - prefix_rows(); }
};

// What an EventSequences points into.
struct EventBatch {
  std::vector<std::int64_t> offsets, num_targets, times;
  std::vector<std::uint32_t> masks;
  std::int64_t prefix;

  explicit EventBatch(const EventCase& c)
      : offsets(c.offsets()), num_targets(c.targets), prefix(c.prefix) {
    PhiloxStream random(11);
    for (std::int64_t i = 0; i < c.events(); ++i) {
      times.push_back(static_cast<std::int64_t>(random.below(2000)));
      masks.push_back(random.next_u32());
    }
  }
  ops::EventSequences view() const {
    return {.offsets = view_of(offsets),
            .num_prefix = prefix,
            .num_targets = view_of(num_targets),
            .times = {times.data(), {std::ssize(times)}}};
  }
  View<const std::uint32_t, 1> mask_view() const { return {masks.data(), {std::ssize(masks)}}; }
};

template <class A>
Tensor event_start(std::vector<std::int64_t> shape) {
  Tensor tensor(dtype_of<A>(), std::move(shape));
  std::fill_n(reinterpret_cast<A*>(tensor.data()), tensor.size(), static_cast<A>(kEventStart));
  return tensor;
}

template <class T>
struct EventInputs {
  Tensor prefix, events, position, time, dx;

  explicit EventInputs(const EventCase& c)
      : prefix(random_tensor<T>({c.prefix_rows(), c.cols}, 1)),
        events(random_tensor<T>({c.events(), c.cols}, 2)),
        position(random_tensor<Accum<T>>({c.positions, c.cols}, 3)),
        time(random_tensor<Accum<T>>({c.buckets + 1, c.cols}, 4)),
        dx(random_tensor<T>({c.tokens(), c.cols}, 5)) {}

  EventInputs<double> widened(const EventCase& c) const {
    EventInputs<double> out(c);
    out.prefix = converted<double, T>(prefix);
    out.events = converted<double, T>(events);
    out.position = converted<double, Accum<T>>(position);
    out.time = converted<double, Accum<T>>(time);
    out.dx = converted<double, T>(dx);
    return out;
  }
};

struct EventResults {
  Tensor x, dprefix, devents, dposition, dtime;
};

// Where bucket k begins, in seconds.
inline double bucket_edge(ops::TimeBuckets kind, std::int64_t k) {
  const auto number = static_cast<double>(k);
  return kind == ops::TimeBuckets::kLog ? 60 * std::exp(number) : 60 * number * number;
}

// Token by token; the bucket by counting up.
template <class T>
EventResults plain_event_input(const EventCase& c, const EventBatch& batch,
                               const EventInputs<T>& in) {
  using A = Accum<T>;
  EventResults out = {
      Tensor(dtype_of<T>(), {c.tokens(), c.cols}), Tensor(dtype_of<T>(), {c.prefix_rows(), c.cols}),
      Tensor(dtype_of<T>(), {c.events(), c.cols}), event_start<A>({c.positions, c.cols}),
      event_start<A>({c.buckets + 1, c.cols})};
  std::int64_t token = 0, event = 0, prefix = 0;
  for (std::size_t b = 0; b < c.history.size(); ++b) {
    const std::int64_t count = c.history[b] + c.targets[b];
    const std::int64_t now =
        count > 0 ? batch.times[static_cast<std::size_t>(event + count - 1)] : 0;
    for (std::int64_t i = 0; i < c.prefix + count; ++i, ++token) {
      const bool is_prefix = i < c.prefix;
      const std::int64_t j = i - c.prefix;
      const std::int64_t time = is_prefix ? 0 : batch.times[static_cast<std::size_t>(event)];
      std::int64_t bucket = 0;
      const auto gap = static_cast<double>(now - time);
      while (bucket < c.buckets && bucket_edge(c.kind, bucket + 1) <= gap) ++bucket;
      std::int64_t place = i;
      if (!is_prefix) place = j < c.history[b] ? c.prefix + c.history[b] - j : c.prefix;
      place = std::min(place, c.positions - 1);
      const std::int64_t row = is_prefix ? prefix++ : event++;
      const ops::DropoutRow drop = ops::dropout_row(c.dropout, token);
      for (std::int64_t k = 0; k < c.cols; ++k) {
        const A factor = static_cast<A>(drop.factor(k));
        const A scale = static_cast<A>(kEventScale);
        const A given =
            convert<A>((is_prefix ? in.prefix : in.events).template view<T, 2>()(row, k));
        out.x.template view<T, 2>()(token, k) =
            convert<T>((scale * given + in.position.template view<A, 2>()(place, k) +
                        in.time.template view<A, 2>()(bucket, k)) *
                       factor);
        const A d = convert<A>(in.dx.template view<T, 2>()(token, k)) * factor;
        (is_prefix ? out.dprefix : out.devents).template view<T, 2>()(row, k) =
            convert<T>(scale * d);
        out.dposition.template view<A, 2>()(place, k) += d;
        out.dtime.template view<A, 2>()(bucket, k) += d;
      }
    }
  }
  return out;
}

template <class T>
EventResults run_event_input(Context& ctx, const EventCase& c, const EventBatch& batch,
                             const EventInputs<T>& in) {
  using A = Accum<T>;
  const Block<T> prefix(in.prefix), events(in.events), dx(in.dx);
  Block<T> x(c.tokens(), c.cols), dprefix(c.prefix_rows(), c.cols), devents(c.events(), c.cols);
  EventResults out;
  out.dposition = event_start<A>({c.positions, c.cols});
  out.dtime = event_start<A>({c.buckets + 1, c.cols});
  const ops::EventInputOptions options = {
      .scale = kEventScale, .buckets = c.kind, .dropout = c.dropout};
  ctx.workspace().reserve(ops::event_input_workspace_bytes<T>(ctx, c.tokens(), c.cols));
  ops::event_input<T>(ctx, batch.view(), {prefix.rows(), events.rows()},
                      {in.position.template view<A, 2>(), in.time.template view<A, 2>()}, options,
                      x.rows());
  ops::event_input_backward<T>(ctx, batch.view(), dx.rows(), options,
                               {dprefix.rows(), devents.rows()},
                               {out.dposition.view<A, 2>(), out.dtime.view<A, 2>()});
  out.x = x.values();
  out.dprefix = dprefix.values();
  out.devents = devents.values();
  return out;
}

struct ActionResults {
  Tensor rows, dtable, dtarget;
};

template <class T>
ActionResults run_action_bits(Context& ctx, const EventCase& c, const EventBatch& batch,
                              const Tensor& table, const Tensor& target, const Tensor& drows) {
  using A = Accum<T>;
  Block<T> rows(c.events(), table.size());
  const Block<T> d(drows);
  ActionResults out = {Tensor(), event_start<A>(table.shape()), event_start<A>(target.shape())};
  ops::action_bits<T>(ctx, batch.view(), {table.view<A, 2>(), target.view<A, 1>()},
                      batch.mask_view(), rows.rows());
  ops::action_bits_backward<T>(ctx, batch.view(), batch.mask_view(), d.rows(),
                               {out.dtable.view<A, 2>(), out.dtarget.view<A, 1>()});
  out.rows = rows.values();
  return out;
}

}  // namespace turbogr::test
