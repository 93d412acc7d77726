#include <queue>
#include <unordered_map>

#include "bench/gemm.h"
#include "bench/row_case.h"
#include "turbogr/ops/rows/embedding.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::bench {
namespace {

constexpr std::int64_t kIdsPerToken = 129;  // the positive and its negatives

// `per_token` ids for every token, few of them popular. The baseline's padding is item 0
// throughout, as padded batches have it.
View<std::int64_t, 1> item_ids(Buffers& buffers, const Batch& batch, std::int64_t per_token) {
  const std::int64_t table_rows = batch.problem.table_rows;
  const View<std::int64_t, 1> ids =
      buffers.indices<std::int64_t>(batch.rows() * per_token, table_rows);
  const std::vector<std::int64_t> offsets = batch.offsets();
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    for (std::int64_t i = offsets[b] * per_token; i < offsets[b + 1] * per_token; ++i) {
      const double share = static_cast<double>(ids(i)) / static_cast<double>(table_rows);
      ids(i) = static_cast<std::int64_t>(share * share * static_cast<double>(table_rows));
      if (i >= (offsets[b] + batch.problem.lengths[b]) * per_token) ids(i) = 0;
    }
  }
  return ids;
}

template <class T>
struct GatherRun {
  const Context& ctx;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> table, out;
  View<std::int64_t, 1> ids;
  std::size_t scratch_bytes = 0;

  GatherRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        table(buffers.input<T>(batch.problem.table_rows, cols)),
        out(buffers.output<T>(rows, cols)),
        ids(item_ids(buffers, batch, 1)) {}

  Work forward_work() const {
    return {.bytes = 2.0 * static_cast<double>(rows) * static_cast<double>(cols) * sizeof(T)};
  }
  void forward() { ops::gather_rows<T>(ctx, table, ids, out); }
  double error() {
    buffers.poison();
    forward();
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto bytes = static_cast<std::size_t>(cols) * sizeof(T);
      if (std::memcmp(&out(i, 0), &table(ids(i), 0), bytes) != 0) return INFINITY;
    }
    return 0;
  }
};

// Memory of dedup_ids.
struct Groups {
  View<std::int64_t, 1> ids;
  ops::DedupOutput output;
  std::int64_t num_unique = 0;

  Groups(Buffers& buffers, const Batch& batch, std::int64_t per_token)
      : ids(item_ids(buffers, batch, per_token)) {
    const std::int64_t count = ids.size();
    output = {
        buffers.output_vector<std::int64_t>(count), buffers.output_vector<std::int64_t>(count + 1),
        buffers.output_vector<std::int32_t>(count), buffers.output_vector<std::int32_t>(count)};
  }
};

// Ids are i64 whatever the rows are; `T` is there for the family's sake.
template <class T>
struct DedupRun {
  const Context& ctx;
  Buffers buffers;
  Groups groups;
  std::size_t scratch_bytes;

  DedupRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        buffers(batch),
        groups(buffers, batch, kIdsPerToken),
        scratch_bytes(ops::dedup_ids_workspace_bytes(groups.ids.size())) {
    ctx.workspace().reserve(scratch_bytes);
    forward();
  }

  // Ids in, positions and inverse out, a word and an offset a group.
  Work forward_work() const {
    return {.bytes = 16.0 * static_cast<double>(groups.ids.size() + groups.num_unique)};
  }
  void forward() { groups.num_unique = ops::dedup_ids(ctx, groups.ids, groups.output); }
  double error() {
    buffers.poison();
    forward();
    std::vector<std::int64_t> wanted(groups.ids.data, groups.ids.data + groups.ids.size());
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    if (static_cast<std::int64_t>(wanted.size()) != groups.num_unique) return INFINITY;
    for (std::int64_t u = 0; u < groups.num_unique; ++u) {
      if (groups.output.unique(u) != wanted[static_cast<std::size_t>(u)]) return INFINITY;
    }
    for (std::int64_t i = 0; i < groups.ids.size(); ++i) {
      if (groups.output.unique(groups.output.inverse(i)) != groups.ids(i)) return INFINITY;
    }
    return 0;
  }
};

template <class T>
struct SumDuplicatesRun {
  const Context& ctx;
  std::int64_t rows, cols;
  Buffers buffers;
  View<T, 2> drows;
  View<Accum<T>, 2> dunique;
  Groups groups;
  std::size_t scratch_bytes = 0;

  SumDuplicatesRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        buffers(batch),
        drows(buffers.input<T>(rows, cols)),
        dunique(buffers.output<Accum<T>>(rows, cols)),
        groups(buffers, batch, 1) {
    ctx.workspace().reserve(ops::dedup_ids_workspace_bytes(rows));
    groups.num_unique = ops::dedup_ids(ctx, groups.ids, groups.output);
  }

  Work backward_work() const {
    return {.bytes = static_cast<double>(cols) *
                     (static_cast<double>(rows) * sizeof(T) +
                      static_cast<double>(groups.num_unique) * sizeof(Accum<T>))};
  }
  void backward() {
    ops::sum_duplicate_rows<T>(ctx, drows, groups.output.first(groups.num_unique),
                               {dunique.data, groups.num_unique, cols, cols});
  }
  double error() {
    backward();
    std::unordered_map<std::int64_t, std::vector<double>> wanted;
    for (std::int64_t i = 0; i < rows; ++i) {
      auto& sums = wanted[groups.ids(i)];
      sums.resize(static_cast<std::size_t>(cols));
      for (std::int64_t c = 0; c < cols; ++c) {
        sums[static_cast<std::size_t>(c)] += convert<double>(drows(i, c));
      }
    }
    double difference = 0;
    double largest = 0;
    for (std::int64_t u = 0; u < groups.num_unique; ++u) {
      const auto& sums = wanted.at(groups.output.unique(u));
      for (std::int64_t c = 0; c < cols; ++c) {
        const double exact = sums[static_cast<std::size_t>(c)];
        const double gap = std::abs(dunique(u, c) - exact);
        if (!std::isfinite(gap)) return INFINITY;
        difference = std::max(difference, gap);
        largest = std::max(largest, std::abs(exact));
      }
    }
    return difference / largest;
  }
};

// Retrieval has no padding to save. The baseline makes all scores with one product and keeps the
// best of each row in a heap.
template <class T>
struct TopKRun {
  static constexpr std::int64_t kBest = 100;
  static constexpr std::int64_t kMostQueries = 128;
  const Context& ctx;
  std::int64_t queries, cols, items;
  Buffers buffers;
  View<T, 2> query, table;
  View<std::int64_t, 2> ids;
  View<Accum<T>, 2> scores;
  View<std::int64_t, 1> count;
  std::size_t scratch_bytes;
  Tensor all_scores, baseline_scores;
  Gemm product;

  TopKRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        queries(std::min(kMostQueries, batch.rows())),
        cols(batch.problem.width()),
        items(batch.problem.table_rows),
        buffers(batch),
        query(buffers.input<T>(queries, cols)),
        table(buffers.input<T>(items, cols)),
        ids(buffers.output<std::int64_t>(queries, kBest)),
        scores(buffers.output<Accum<T>>(queries, kBest)),
        count(buffers.output_vector<std::int64_t>(queries)),
        scratch_bytes(ops::top_k_workspace_bytes(ctx, queries, cols, 0, kBest)),
        all_scores(DType::kF32, {queries, items}),
        baseline_scores(DType::kF32, {queries, kBest}),
        product({.m = queries, .n = items, .k = cols, .transpose_b = true, .dtype = dtype_of<T>()},
                ctx) {
    ctx.workspace().reserve(scratch_bytes);
  }

  double flops() const {
    return 2.0 * static_cast<double>(queries) * static_cast<double>(items) *
           static_cast<double>(cols);
  }
  std::size_t bytes() const { return buffers.bytes() + scratch_bytes; }
  std::size_t baseline_bytes() const { return buffers.bytes() + all_scores.bytes(); }

  void run() { ops::top_k<T>(ctx, {.query = query, .table = table}, {ids, scores, count}); }
  void run_baseline() {
    product.run(query.data, table.data, all_scores.data());
    const View<float, 2> all = all_scores.view<float, 2>();
    const View<float, 2> best = baseline_scores.view<float, 2>();
    parallel_for(ctx.pool(), queries, [&](std::int64_t row, int) {
      std::priority_queue<float, std::vector<float>, std::greater<>> heap;
      for (std::int64_t i = 0; i < items; ++i) {
        const float score = all(row, i);
        if (static_cast<std::int64_t>(heap.size()) < kBest) {
          heap.push(score);
        } else if (score > heap.top()) {
          heap.pop();
          heap.push(score);
        }
      }
      for (std::int64_t k = kBest - 1; k >= 0; --k, heap.pop()) best(row, k) = heap.top();
    });
  }
  // The first queries' scores in f64: of the ids chosen, and the best there are.
  double error() {
    buffers.poison();
    run();
    double worst = 0;
    std::vector<double> exact(static_cast<std::size_t>(items));
    for (std::int64_t row = 0; row < std::min<std::int64_t>(4, queries); ++row) {
      for (std::int64_t i = 0; i < items; ++i) {
        double score = 0;
        for (std::int64_t c = 0; c < cols; ++c) {
          score += convert<double>(query(row, c)) * convert<double>(table(i, c));
        }
        exact[static_cast<std::size_t>(i)] = score;
      }
      std::vector<double> chosen;
      for (std::int64_t k = 0; k < kBest; ++k) {
        if (ids(row, k) < 0 || ids(row, k) >= items) return INFINITY;
        chosen.push_back(exact[static_cast<std::size_t>(ids(row, k))]);
      }
      std::partial_sort(exact.begin(), exact.begin() + kBest, exact.end(), std::greater<>());
      for (std::int64_t k = 0; k < kBest; ++k) {
        const auto at = static_cast<std::size_t>(k);
        worst = std::max({worst, std::abs(chosen[at] - exact[at]) / exact[0],
                          std::abs(static_cast<double>(scores(row, k)) - exact[at]) / exact[0]});
      }
    }
    return worst;
  }
};

template <class T>
std::vector<OpCase> top_k_cases(const Context& ctx, const OpProblem& problem) {
  auto run = std::make_shared<TopKRun<T>>(ctx, Batch{problem, dtype_of<T>()});
  OpCase one;
  one.op = "top_k";
  one.direction = "forward";
  one.dtype = dtype_of<T>();
  one.flops = run->flops();
  one.peak_bytes = run->bytes();
  one.padded_bytes = run->baseline_bytes();
  one.run = [run] { run->run(); };
  one.run_padded = [run] { run->run_baseline(); };
  one.error = [run] { return run->error(); };
  one.allowed_error = 1e-4;
  return {one};
}

std::vector<OpCase> dedup_cases(const Context& ctx, const OpProblem& problem, DType dtype) {
  if (dtype != DType::kF32) return {};  // once: ids have no number format
  std::vector<OpCase> cases = row_cases<DedupRun, float>("dedup_ids", ctx, problem, {});
  for (OpCase& one : cases) one.dtype = DType::kI64;
  return cases;
}

}  // namespace

std::vector<OpFamily> sparse_families() {
  return {row_family<GatherRun>("embedding_gather", {.f32 = 0, .bf16 = 0}),
          {"dedup_ids", dedup_cases},
          row_family<SumDuplicatesRun>("sum_duplicate_rows", {.f32 = 1e-5, .bf16 = 1e-5}),
          {"top_k", [](const Context& ctx, const OpProblem& problem, DType dtype) {
             return dtype == DType::kBf16 ? top_k_cases<bf16>(ctx, problem)
                                          : top_k_cases<float>(ctx, problem);
           }}};
}

}  // namespace turbogr::bench
