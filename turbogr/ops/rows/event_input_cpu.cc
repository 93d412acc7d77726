#include <algorithm>

#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/rows/event_input_kernels.h"
#include "turbogr/ops/rows/event_input_simd.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kRows = 64;     // of a piece
constexpr std::int64_t kColumns = 16;  // of a piece of the tables' gradients

// What each token reads.
struct Places {
  View<std::int64_t, 1> source;  // [N]: row of prefix; or of events, counted from the prefix's end
  View<std::int64_t, 1> position;
  View<std::int64_t, 1> bucket;
};

Places make_places(Cpu cpu, WorkspaceScope& scope, const EventSequences& s, std::int64_t positions,
                   TimeBuckets buckets, std::int64_t last_bucket) {
  const std::int64_t tokens = s.num_tokens();
  const std::int64_t c = s.num_prefix;
  const std::int64_t prefix_rows = s.batch() * c;
  const Places places = {scope.take<std::int64_t>(tokens), scope.take<std::int64_t>(tokens),
                         scope.take<std::int64_t>(tokens)};
  parallel_for(cpu.pool, s.batch(), [&](std::int64_t b, int) {
    const EventSequence at = event_sequence(s, b);
    const std::int64_t now = at.events() > 0 ? s.times(at.event + at.events() - 1) : 0;
    for (std::int64_t k = 0; k < c; ++k) {
      places.source(at.token + k) = b * c + k;
      places.position(at.token + k) = k;
      places.bucket(at.token + k) = time_bucket(buckets, now, 0, last_bucket);
    }
    for (std::int64_t j = 0; j < at.events(); ++j) {
      const std::int64_t token = at.token + c + j;
      const std::int64_t back = std::max<std::int64_t>(at.history - j, 0);  // 0: a target
      places.source(token) = prefix_rows + at.event + j;
      places.position(token) = std::min(c + back, positions - 1);
      places.bucket(token) = time_bucket(buckets, now, s.times(at.event + j), last_bucket);
    }
  });
  return places;
}

template <class T>
T* token_row(const EventTokens<T>& tokens, std::int64_t source) {
  const std::int64_t event = source - tokens.prefix.rows;
  return event < 0 ? tokens.prefix.row(source) : tokens.events.row(event);
}

DropoutRowArgs row_args(const DropoutDraw& draw, std::int64_t row, std::int64_t cols) {
  const DropoutRow drop = draw.row(row);
  return {drop.seed, drop.row_key, drop.site, drop.threshold, static_cast<float>(drop.scale), cols};
}

}  // namespace

template <class T>
void event_input(Cpu cpu, const EventSequences& sequences, const EventTokens<const T>& tokens,
                 const EventTables<const Accum<T>>& tables, const EventInputOptions& options,
                 Rows<T> x) {
  const auto forward = event_input_table(cpu.simd).of<T>().forward;
  const auto scale = static_cast<float>(options.scale);
  const DropoutDraw draw(options.dropout);
  WorkspaceScope scope(cpu.workspace);
  const Places places = make_places(cpu, scope, sequences, tables.position.shape[0],
                                    options.buckets, tables.time.shape[0] - 1);
  parallel_ranges(cpu.pool, x.rows, kRows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      forward(row_args(draw, r, x.cols), scale, token_row(tokens, places.source(r)),
              &tables.position(places.position(r), 0), &tables.time(places.bucket(r), 0), x.row(r));
    }
  });
}

template <class T>
void event_input_backward(Cpu cpu, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables) {
  const EventInputTable& loops = event_input_table(cpu.simd);
  const auto backward = loops.of<T>().backward;
  const auto scale = static_cast<float>(options.scale);
  const DropoutDraw draw(options.dropout);
  WorkspaceScope scope(cpu.workspace);
  const Places places = make_places(cpu, scope, sequences, dtables.position.shape[0],
                                    options.buckets, dtables.time.shape[0] - 1);
  const auto d = scope.take<float, 2>({dx.rows, dx.cols});
  parallel_ranges(cpu.pool, dx.rows, kRows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      backward(row_args(draw, r, dx.cols), scale, dx.row(r), token_row(dtokens, places.source(r)),
               &d(r, 0));
    }
  });
  // A thread has all rows of some columns: each element of a table adds up in the tokens' order.
  parallel_ranges(cpu.pool, dx.cols, kColumns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < dx.rows; ++r) {
      loops.add(end - begin, &d(r, begin), &dtables.position(places.position(r), begin));
      loops.add(end - begin, &d(r, begin), &dtables.time(places.bucket(r), begin));
    }
  });
}

template <class T>
std::size_t event_input_workspace_bytes(Cpu, std::int64_t tokens, std::int64_t width) {
  return 3 * workspace_bytes_of<std::int64_t>(tokens) + workspace_bytes_of<float>(tokens * width);
}

// The specification.
template <>
void event_input<double>(Cpu cpu, const EventSequences& sequences,
                         const EventTokens<const double>& tokens,
                         const EventTables<const double>& tables, const EventInputOptions& options,
                         Rows<double> x) {
  WorkspaceScope scope(cpu.workspace);
  const Places places = make_places(cpu, scope, sequences, tables.position.shape[0],
                                    options.buckets, tables.time.shape[0] - 1);
  parallel_ranges(cpu.pool, x.rows, kRows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const DropoutRow drop = dropout_row(options.dropout, r);
      const double* token = token_row(tokens, places.source(r));
      const double* position = &tables.position(places.position(r), 0);
      const double* time = &tables.time(places.bucket(r), 0);
      for (std::int64_t c = 0; c < x.cols; ++c) {
        x(r, c) = (options.scale * token[c] + position[c] + time[c]) * drop.factor(c);
      }
    }
  });
}

template <>
void event_input_backward<double>(Cpu cpu, const EventSequences& sequences, Rows<const double> dx,
                                  const EventInputOptions& options,
                                  const EventTokens<double>& dtokens,
                                  const EventTables<double>& dtables) {
  WorkspaceScope scope(cpu.workspace);
  const Places places = make_places(cpu, scope, sequences, dtables.position.shape[0],
                                    options.buckets, dtables.time.shape[0] - 1);
  parallel_ranges(cpu.pool, dx.cols, kColumns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < dx.rows; ++r) {
      const DropoutRow drop = dropout_row(options.dropout, r);
      double* dtoken = token_row(dtokens, places.source(r));
      for (std::int64_t c = begin; c < end; ++c) {
        const double d = dx(r, c) * drop.factor(c);
        dtoken[c] = options.scale * d;
        dtables.position(places.position(r), c) += d;
        dtables.time(places.bucket(r), c) += d;
      }
    }
  });
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void event_input<T>(Cpu, const EventSequences&, const EventTokens<const T>&,      \
                               const EventTables<const Accum<T>>&, const EventInputOptions&, \
                               Rows<T>);                                                     \
  template void event_input_backward<T>(Cpu, const EventSequences&, Rows<const T>,           \
                                        const EventInputOptions&, const EventTokens<T>&,     \
                                        const EventTables<Accum<T>>&);                       \
  template std::size_t event_input_workspace_bytes<T>(Cpu, std::int64_t, std::int64_t);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE
template std::size_t event_input_workspace_bytes<double>(Cpu, std::int64_t, std::int64_t);

}  // namespace turbogr::ops::kernels
