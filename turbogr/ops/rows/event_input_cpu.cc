#include <algorithm>

#include "turbogr/ops/dense/dropout_mask.h"
#include "turbogr/ops/rows/event_input_kernels.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kRows = 64;     // of a piece
constexpr std::int64_t kColumns = 32;  // of a piece of the tables' gradients

// What each token reads.
struct Places {
  View<std::int64_t, 1> source;  // [N]: row of prefix; or of events, counted from the prefix's end
  View<std::int64_t, 1> position;
  View<std::int64_t, 1> bucket;
};

Places make_places(Cpu cpu, WorkspaceScope& scope, const EventSequences& s, std::int64_t positions,
                   std::int64_t last_bucket) {
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
      places.bucket(at.token + k) = square_root_bucket(now, 0, last_bucket);
    }
    for (std::int64_t j = 0; j < at.events(); ++j) {
      const std::int64_t token = at.token + c + j;
      const std::int64_t back = std::max<std::int64_t>(at.history - j, 0);  // 0: a target
      places.source(token) = prefix_rows + at.event + j;
      places.position(token) = std::min(c + back, positions - 1);
      places.bucket(token) = square_root_bucket(now, s.times(at.event + j), last_bucket);
    }
  });
  return places;
}

template <class T>
T* token_row(const EventTokens<T>& tokens, std::int64_t source) {
  const std::int64_t event = source - tokens.prefix.rows;
  return event < 0 ? tokens.prefix.row(source) : tokens.events.row(event);
}

template <class A>
A factor_at(const DropoutRow& drop, std::int64_t column) {
  return drop.threshold == 0 ? A(1) : static_cast<A>(drop.factor(column));
}

}  // namespace

template <class T>
void event_input(Cpu cpu, const EventSequences& sequences, const EventTokens<const T>& tokens,
                 const EventTables<const Accum<T>>& tables, const EventInputOptions& options,
                 Rows<T> x) {
  using A = Accum<T>;
  const auto scale = static_cast<A>(options.scale);
  WorkspaceScope scope(cpu.workspace);
  const Places places =
      make_places(cpu, scope, sequences, tables.position.shape[0], tables.time.shape[0] - 1);
  parallel_ranges(cpu.pool, x.rows, kRows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const DropoutRow drop = dropout_row(options.dropout, r);
      const T* token = token_row(tokens, places.source(r));
      const A* position = &tables.position(places.position(r), 0);
      const A* time = &tables.time(places.bucket(r), 0);
      for (std::int64_t c = 0; c < x.cols; ++c) {
        const A sum = scale * convert<A>(token[c]) + position[c] + time[c];
        x(r, c) = convert<T>(sum * factor_at<A>(drop, c));
      }
    }
  });
}

template <class T>
void event_input_backward(Cpu cpu, const EventSequences& sequences, Rows<const T> dx,
                          const EventInputOptions& options, const EventTokens<T>& dtokens,
                          const EventTables<Accum<T>>& dtables) {
  using A = Accum<T>;
  const auto scale = static_cast<A>(options.scale);
  WorkspaceScope scope(cpu.workspace);
  const Places places =
      make_places(cpu, scope, sequences, dtables.position.shape[0], dtables.time.shape[0] - 1);
  // A thread has all rows of some columns: each element of a table adds up in the tokens' order.
  parallel_ranges(cpu.pool, dx.cols, kColumns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < dx.rows; ++r) {
      const DropoutRow drop = dropout_row(options.dropout, r);
      T* dtoken = token_row(dtokens, places.source(r));
      A* dposition = &dtables.position(places.position(r), 0);
      A* dtime = &dtables.time(places.bucket(r), 0);
      for (std::int64_t c = begin; c < end; ++c) {
        const A d = convert<A>(dx(r, c)) * factor_at<A>(drop, c);
        dtoken[c] = convert<T>(scale * d);
        dposition[c] += d;
        dtime[c] += d;
      }
    }
  });
}

template <class T>
std::size_t event_input_workspace_bytes(Cpu, std::int64_t tokens, std::int64_t) {
  return 3 * workspace_bytes_of<std::int64_t>(tokens);
}

#define TGR_INSTANTIATE(T)                                                                   \
  template void event_input<T>(Cpu, const EventSequences&, const EventTokens<const T>&,      \
                               const EventTables<const Accum<T>>&, const EventInputOptions&, \
                               Rows<T>);                                                     \
  template void event_input_backward<T>(Cpu, const EventSequences&, Rows<const T>,           \
                                        const EventInputOptions&, const EventTokens<T>&,     \
                                        const EventTables<Accum<T>>&);                       \
  template std::size_t event_input_workspace_bytes<T>(Cpu, std::int64_t, std::int64_t);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
