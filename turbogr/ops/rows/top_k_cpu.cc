#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include "turbogr/core/check.h"
#include "turbogr/ops/rows/top_k_kernels.h"
#include "turbogr/ops/softmax/candidate_block.h"

namespace turbogr::ops::kernels {
namespace {

// What turns queries and items into scores, a tile at a time. f64 is the specification.
template <class T>
class Scorer {
 public:
  using A = Accum<T>;

  Scorer(Cpu cpu, WorkspaceScope& scratch, const RetrievalInputs<T>& inputs)
      : cpu_(cpu),
        in_(inputs),
        block_(scratch, inputs.query.cols),
        queries_(
            scratch.take<float, 3>({cpu.pool.size(), kTileRows, padded_width(inputs.query.cols)})),
        narrowed_(scratch.take<T, 2>({cpu.pool.size(), inputs.query.cols})) {}

  static std::size_t workspace_bytes(int threads, std::int64_t width) {
    return CandidateBlock::workspace_bytes(width) +
           workspace_bytes_of<float>(threads * kTileRows * padded_width(width)) +
           workspace_bytes_of<double>(threads * width);
  }

  A query_scale(std::int64_t q) const {
    return in_.query_inverse_norms.empty() ? A{1} : in_.query_inverse_norms(q);
  }
  A item_scale(std::int64_t v) const {
    return in_.table_inverse_norms.empty() ? A{1} : in_.table_inverse_norms(v);
  }

  // Items [first, first + count) are those that scores() takes next.
  void load_items(std::int64_t first, std::int64_t count) {
    first_ = first;
    count_ = count;
    if constexpr (!std::is_same_v<T, double>) {
      with_rows<T>(in_.table, [&]<class Stored>(Rows<const Stored> table) {
        block_.fill_with(cpu_, count, [&](std::int64_t j, float* row, int worker) {
          widen_item(table, first + j, row, worker);
        });
      });
    }
  }

  // out [end - begin, kBlockCandidates]
  void scores(std::int64_t begin, std::int64_t end, int worker, A* out) {
    if constexpr (std::is_same_v<T, double>) {
      for (std::int64_t q = begin; q < end; ++q) {
        for (std::int64_t j = 0; j < count_; ++j) {
          out[(q - begin) * kBlockCandidates + j] = of_item(q, first_ + j, worker);
        }
      }
    } else {
      float* tile = &queries_(worker, 0, 0);
      for (std::int64_t q = begin; q < end; ++q) {
        widen_padded<T>(cpu_.simd, in_.query.row(q), query_scale(q), in_.query.cols,
                        tile + (q - begin) * queries_.shape[2]);
      }
      block_.score(cpu_.simd, tile, end - begin, out);
    }
  }

  // One score, with the bits that scores() gives it: ties must be ties.
  A of_target(std::int64_t q, int worker) {
    if (in_.target_rows.data == nullptr) return of_item(q, in_.target(q), worker);
    const A scale = in_.target_inverse_norms.empty() ? A{1} : in_.target_inverse_norms(q);
    const T* row = in_.target_rows.row(q);
    if constexpr (std::is_same_v<T, double>) {
      return dot(q, row, scale);
    } else {
      float* item = &queries_(worker, 1, 0);
      widen_padded<T>(cpu_.simd, row, scale, in_.query.cols, item);
      return dot(q, item, worker);
    }
  }

  bool all_finite(const A* x, std::int64_t count) const {
    if constexpr (std::is_same_v<T, double>) {
      return std::all_of(x, x + count, [](double value) { return std::isfinite(value); });
    } else {
      return tile_table(cpu_.simd).all_finite(x, count);
    }
  }
  std::int64_t above(const A* x, std::int64_t count, A threshold, std::int32_t* columns) const {
    if constexpr (std::is_same_v<T, double>) {
      std::int64_t found = 0;
      for (std::int64_t j = 0; j < count; ++j) {
        if (x[j] > threshold) columns[found++] = static_cast<std::int32_t>(j);
      }
      return found;
    } else {
      return tile_table(cpu_.simd).above(x, count, threshold, columns);
    }
  }
  std::int64_t count_above(const A* x, std::int64_t count, A threshold) const {
    if constexpr (std::is_same_v<T, double>) {
      return std::count_if(x, x + count, [&](double value) { return value > threshold; });
    } else {
      return tile_table(cpu_.simd).count_above(x, count, threshold);
    }
  }

 private:
  std::int64_t row_of(std::int64_t v) const {
    return in_.chosen.data == nullptr ? v : in_.chosen(v);
  }
  // As if the table were one of T: rounded first where T is the narrower format.
  template <class Stored>
  void widen_item(Rows<const Stored> table, std::int64_t v, float* out, int worker) {
    const Stored* row = table.row(row_of(v));
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Stored>) {
      widen_padded<Stored>(cpu_.simd, row, item_scale(v), table.cols, out);
    } else {
      T* narrowed = &narrowed_(worker, 0);
      if constexpr (std::is_same_v<Stored, float>) {
        row_kernels<T>(cpu_.simd).narrow(row, 1.0f, table.cols, narrowed);
      } else {
        for (std::int64_t c = 0; c < table.cols; ++c) narrowed[c] = convert<T>(row[c]);
      }
      widen_padded<T>(cpu_.simd, narrowed, item_scale(v), table.cols, out);
    }
  }
  A of_item(std::int64_t q, std::int64_t v, int worker) {
    if constexpr (std::is_same_v<T, double>) {
      return dot(q, in_.table.template as<double>().row(row_of(v)), item_scale(v));
    } else {
      float* item = &queries_(worker, 1, 0);
      with_rows<T>(in_.table, [&]<class Stored>(Rows<const Stored> table) {
        widen_item(table, v, item, worker);
      });
      return dot(q, item, worker);
    }
  }
  double dot(std::int64_t q, const double* row, double scale) const {
    double sum = 0;
    for (std::int64_t c = 0; c < in_.query.cols; ++c) {
      sum += (in_.query(q, c) * query_scale(q)) * (row[c] * scale);
    }
    return sum;
  }
  float dot(std::int64_t q, const float* item, int worker) {
    const std::int64_t width = in_.query.cols;
    float* query = &queries_(worker, 0, 0);
    widen_padded<T>(cpu_.simd, in_.query.row(q), query_scale(q), width, query);
    return tile_table(cpu_.simd).chain_dot(query, item, width);
  }

  Cpu cpu_;
  const RetrievalInputs<T>& in_;
  CandidateBlock block_;
  View<float, 3> queries_;  // [threads, tile, padded width]
  View<T, 2> narrowed_;     // [threads, D]
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
};

// The excluded ids, sorted query by query.
View<const std::int64_t, 1> sorted_exclusions(Cpu cpu, WorkspaceScope& scratch, Offsets offsets,
                                              View<const std::int64_t, 1> excluded) {
  if (offsets.data == nullptr) return {};
  const auto sorted = scratch.take<std::int64_t>(excluded.shape[0]);
  parallel_ranges(cpu.pool, offsets.shape[0] - 1, 16,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    std::copy(excluded.data + offsets(begin), excluded.data + offsets(end),
                              sorted.data + offsets(begin));
                    for (std::int64_t q = begin; q < end; ++q) {
                      std::sort(sorted.data + offsets(q), sorted.data + offsets(q + 1));
                    }
                  });
  return sorted;
}

// Calls row(query, first item, count, scores, worker) for every query and chunk of the table,
// chunks in order, after putting -infinity where an item is excluded.
template <class T, class RowFunction>
void for_each_row(const char* op, Cpu cpu, WorkspaceScope& scratch,
                  const RetrievalInputs<T>& inputs, Scorer<T>& scorer, RowFunction&& row) {
  using A = Accum<T>;
  const auto excluded = sorted_exclusions(cpu, scratch, inputs.excluded_offsets, inputs.excluded);
  const auto scores = scratch.take<A, 3>({cpu.pool.size(), kTileRows, kBlockCandidates});
  const std::int64_t queries = inputs.query.rows;
  const std::int64_t items = inputs.num_items();
  // Few queries: smaller tiles, so that every thread has some. A score's bits do not change.
  const std::int64_t tile = queries >= 8 * kTileRows ? kTileRows : kTileRows / 8;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> first_bad{kNone};  // query * items + item

  const auto mask_and_check = [&](std::int64_t q, std::int64_t first, std::int64_t count, A* x) {
    if (!scorer.all_finite(x, count)) {
      const A* bad = std::find_if(x, x + count, [](A value) { return !std::isfinite(value); });
      const std::int64_t place = q * items + first + (bad - x);
      std::int64_t seen = first_bad.load();
      while (place < seen && !first_bad.compare_exchange_weak(seen, place)) {
      }
    }
    if (excluded.data == nullptr) return;
    const std::int64_t* end = excluded.data + inputs.excluded_offsets(q + 1);
    const std::int64_t* id =
        std::lower_bound(excluded.data + inputs.excluded_offsets(q), end, first);
    for (; id < end && *id < first + count; ++id) {
      if (inputs.target.data != nullptr && *id == inputs.target(q)) continue;
      x[*id - first] = -std::numeric_limits<A>::infinity();
    }
  };
  for (std::int64_t first = 0; first < items; first += kBlockCandidates) {
    const std::int64_t count = std::min(kBlockCandidates, items - first);
    scorer.load_items(first, count);
    parallel_ranges(cpu.pool, queries, tile, [&](std::int64_t begin, std::int64_t end, int worker) {
      A* out = &scores(worker, 0, 0);
      scorer.scores(begin, end, worker, out);
      for (std::int64_t q = begin; q < end; ++q) {
        A* x = out + (q - begin) * kBlockCandidates;
        mask_and_check(q, first, count, x);
        row(q, first, count, x, worker);
      }
    });
    const std::int64_t bad = first_bad.load();
    TGR_CHECK(bad == kNone, op, ": the score of query ", bad / items, " against item ", bad % items,
              " is not finite; look for overflow or NaN in the weights, which too high a "
              "learning rate leaves");
  }
}

template <class A>
struct Scored {
  A score;
  std::int64_t id;
};

// Best first; the heap's top is then the worst kept.
template <class A>
bool better(const Scored<A>& a, const Scored<A>& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

}  // namespace

template <class T>
void top_k(Cpu cpu, const RetrievalInputs<T>& inputs, const TopKOutput<T>& output) {
  using A = Accum<T>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  WorkspaceScope scratch(cpu.workspace);
  Scorer<T> scorer(cpu, scratch, inputs);
  const std::int64_t k = output.ids.shape[1];
  const std::int64_t queries = inputs.query.rows;
  const auto heaps = scratch.take<Scored<A>, 2>({queries, k});
  const auto columns = scratch.take<std::int32_t, 2>({cpu.pool.size(), kBlockCandidates});
  std::fill(output.count.data, output.count.data + queries, std::int64_t{0});
  for_each_row<T>(
      "top_k", cpu, scratch, inputs, scorer,
      [&](std::int64_t q, std::int64_t first, std::int64_t count, const A* x, int worker) {
        Scored<A>* heap = heaps.data + q * k;
        std::int64_t& kept = output.count(q);
        std::int32_t* found = columns.data + worker * kBlockCandidates;
        const std::int64_t num_found =
            scorer.above(x, count, kept == k ? heap[0].score : kLowest, found);
        for (std::int64_t j = 0; j < num_found; ++j) {
          const Scored<A> item = {x[found[j]], first + found[j]};
          if (kept == k) {
            if (!better(item, heap[0])) continue;
            std::pop_heap(heap, heap + k, better<A>);
            --kept;
          }
          heap[kept++] = item;
          std::push_heap(heap, heap + kept, better<A>);
        }
      });
  parallel_ranges(cpu.pool, queries, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t q = begin; q < end; ++q) {
      Scored<A>* heap = heaps.data + q * k;
      std::sort_heap(heap, heap + output.count(q), better<A>);
      for (std::int64_t j = 0; j < k; ++j) {
        const bool there = j < output.count(q);
        output.ids(q, j) = there ? heap[j].id : -1;
        output.scores(q, j) = there ? heap[j].score : kLowest;
      }
    }
  });
}

template <class T>
void rank_of_target(Cpu cpu, const RetrievalInputs<T>& inputs, View<std::int64_t, 1> ranks) {
  using A = Accum<T>;
  WorkspaceScope scratch(cpu.workspace);
  Scorer<T> scorer(cpu, scratch, inputs);
  const auto targets = scratch.take<A>(inputs.query.rows);
  parallel_ranges(cpu.pool, inputs.query.rows, 16,
                  [&](std::int64_t begin, std::int64_t end, int worker) {
                    for (std::int64_t q = begin; q < end; ++q) {
                      targets(q) = scorer.of_target(q, worker);
                      ranks(q) = 1;
                    }
                  });
  for_each_row<T>("rank_of_target", cpu, scratch, inputs, scorer,
                  [&](std::int64_t q, std::int64_t, std::int64_t count, const A* x, int) {
                    ranks(q) += scorer.count_above(x, count, targets(q));
                  });
}

std::size_t top_k_workspace_bytes(Cpu cpu, std::int64_t queries, std::int64_t width,
                                  std::int64_t num_excluded, std::int64_t k) {
  const int threads = cpu.pool.size();
  return Scorer<float>::workspace_bytes(threads, width) +
         workspace_bytes_of<std::int64_t>(num_excluded) +
         workspace_bytes_of<double>(threads * kTileRows * kBlockCandidates) +
         workspace_bytes_of<Scored<double>>(queries * k) +
         workspace_bytes_of<std::int32_t>(threads * kBlockCandidates) +
         workspace_bytes_of<double>(queries);
}

#define TGR_INSTANTIATE(T)                                                      \
  template void top_k<T>(Cpu, const RetrievalInputs<T>&, const TopKOutput<T>&); \
  template void rank_of_target<T>(Cpu, const RetrievalInputs<T>&, View<std::int64_t, 1>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
