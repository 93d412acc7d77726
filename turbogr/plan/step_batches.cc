#include "turbogr/plan/step_batches.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <initializer_list>
#include <limits>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/data/batching.h"
#include "turbogr/embedding/touched_rows.h"
#include "turbogr/plan/planned_features.h"
#include "turbogr/run/config_negatives.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/negative_sampler.h"

namespace turbogr::plan {
namespace {

double seconds_since(std::int64_t begin_ns) {
  return static_cast<double>(Trace::now_ns() - begin_ns) * 1e-9;
}

// Of this thread: other programs do not count.
double thread_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What one thread finds ids with.
struct IdFinder {
  IdFinder(std::int64_t num_items, std::int64_t num_rows)
      : touched(num_items), features(std::max(num_rows, std::int64_t{1})) {}

  embedding::TouchedRows touched, features;
  std::vector<std::int64_t> items, negatives, rows;
  double seconds = 0;
  std::int64_t marked = 0;
};

View<const std::int64_t, 1> view_of(const std::vector<std::int64_t>& values) {
  return {values.data(), {std::ssize(values)}};
}

class IdDrawer {
 public:
  IdDrawer(const Context& ctx, const run::Config& config, const Histories& histories)
      : ctx_(ctx),
        histories_(histories),
        features_(config, histories),
        options_(run::negative_options(config.negatives)),
        seed_(static_cast<std::uint64_t>(config.run.seed)),
        sampler_(make_sampler(ctx, options_, histories)) {
    const std::int64_t all = histories.num_items() + features_.num_rows();
    TGR_CHECK(all < std::numeric_limits<std::uint32_t>::max(), "tables of ", all,
              " rows; a plan numbers them with 32 bits");
    for (int thread = 0; thread < ctx.threads(); ++thread) {
      finders_.emplace_back(histories.num_items(), features_.num_rows());
    }
  }

  // The distinct ids of every rank: `order` has the windows that batch.bounds share out.
  void draw(std::int64_t step, std::span<const std::uint32_t> order, StepBatch& batch) {
    const int ranks = batch.ranks();
    sampler_.begin_step({seed_, static_cast<std::uint64_t>(step)});
    if (sampler_.needs_positives()) add_positives(order, batch);
    sampler_.finish_positives();
    if (options_.shared) {
      shared_.resize(static_cast<std::size_t>(options_.count));
      const std::int64_t drawn =
          sampler_.draw_shared(ctx_, 0, {shared_.data(), {std::ssize(shared_)}});
      shared_.resize(static_cast<std::size_t>(drawn));
    }
    if (!features_.empty()) batch.feature_reads.assign(static_cast<std::size_t>(ranks), 0);
    std::vector<std::vector<std::uint32_t>> found(static_cast<std::size_t>(ranks));
    parallel_for(ctx_.pool(), ranks, [&](std::int64_t rank, int worker) {
      find(order, batch, static_cast<int>(rank), finders_[static_cast<std::size_t>(worker)],
           found[static_cast<std::size_t>(rank)]);
    });
    batch.id_bounds.assign(1, 0);
    for (const auto& ids : found)
      batch.id_bounds.push_back(batch.id_bounds.back() + std::ssize(ids));
    batch.ids.reserve(static_cast<std::size_t>(batch.id_bounds.back()));
    for (auto& ids : found) {
      batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
      std::vector<std::uint32_t>().swap(ids);
    }
  }

  double seconds() const {
    double sum = 0;
    for (const IdFinder& finder : finders_) sum += finder.seconds;
    return sum;
  }
  std::int64_t marked() const {
    std::int64_t sum = 0;
    for (const IdFinder& finder : finders_) sum += finder.marked;
    return sum;
  }

 private:
  static train::NegativeSampler make_sampler(const Context& ctx,
                                             const train::NegativeOptions& options,
                                             const Histories& histories) {
    const bool counted = options.trained_only || options.kind != train::NegativeKind::kUniform;
    return {options, histories.num_items(),
            counted ? target_counts(ctx, histories) : std::vector<std::int64_t>()};
  }

  // Windows of a rank, one after the other: read(window, items of its inputs and last target).
  template <class Read>
  void for_each_window(std::span<const std::uint32_t> order, const StepBatch& batch,
                       std::int64_t rank, std::vector<std::int64_t>& items, Read&& read) const {
    const auto r = static_cast<std::size_t>(rank);
    for (std::int64_t at = batch.bounds[r]; at < batch.bounds[r + 1]; ++at) {
      const data::Window& window = histories_.windows()[order[static_cast<std::size_t>(at)]];
      const std::size_t before = items.size();
      items.resize(before + static_cast<std::size_t>(window.length) + 1);
      histories_.read(window, std::span(items).subspan(before));
      read(window, std::span<const std::int64_t>(items).subspan(before));
    }
  }

  // The targets of all ranks, which in-batch negatives are drawn from.
  void add_positives(std::span<const std::uint32_t> order, StepBatch& batch) {
    const auto ranks = static_cast<std::size_t>(batch.ranks());
    std::vector<std::vector<std::int64_t>> targets(ranks);
    std::vector<std::int64_t> count(ranks, 0);
    batch.positives.assign(ranks, 0);
    parallel_for(ctx_.pool(), std::ssize(targets), [&](std::int64_t rank, int) {
      const auto r = static_cast<std::size_t>(rank);
      std::vector<std::int64_t> items;
      std::vector<std::int64_t>& own = targets[r];
      for_each_window(order, batch, rank, items,
                      [&](const data::Window&, std::span<const std::int64_t> all) {
                        own.insert(own.end(), all.begin() + 1, all.end());
                      });
      count[r] = std::ssize(own);
      std::sort(own.begin(), own.end());
      own.erase(std::unique(own.begin(), own.end()), own.end());
      batch.positives[r] = std::ssize(own);
    });
    for (std::size_t r = 0; r < ranks; ++r) sampler_.add_positives(view_of(targets[r]), count[r]);
  }

  void find(std::span<const std::uint32_t> order, StepBatch& batch, int rank, IdFinder& finder,
            std::vector<std::uint32_t>& ids) {
    finder.items.clear();
    finder.rows.clear();
    std::int64_t tokens = 0;
    for_each_window(order, batch, rank, finder.items,
                    [&](const data::Window& window, std::span<const std::int64_t> items) {
                      tokens += window.length;
                      if (features_.empty()) return;
                      features_.read_window(window, items.first(items.size() - 1), finder.rows);
                    });
    if (!options_.shared) {  // keyed by where the tokens are in the step
      std::vector<std::uint64_t> keys(static_cast<std::size_t>(tokens));
      std::iota(keys.begin(), keys.end(), static_cast<std::uint64_t>(rank) << 32);
      finder.negatives.resize(static_cast<std::size_t>(tokens * options_.count));
      sampler_.draw_own(ctx_, {keys.data(), {tokens}},
                        {finder.negatives.data(), {tokens, options_.count}});
    }
    const std::vector<std::int64_t>& negatives = options_.shared ? shared_ : finder.negatives;
    const double begin = thread_seconds();
    add_distinct({view_of(negatives), view_of(finder.items)}, 0, finder.touched, ids);
    if (!features_.empty()) {
      if (features_.of_items()) features_.read_items(finder.touched.ids(), finder.rows);
      batch.feature_reads[static_cast<std::size_t>(rank)] = std::ssize(finder.rows);
      add_distinct({view_of(finder.rows)}, histories_.num_items(), finder.features, ids);
    }
    finder.seconds += thread_seconds() - begin;
    finder.marked += std::ssize(negatives) + std::ssize(finder.items) + std::ssize(finder.rows);
  }

  // Rows of a table, the first of them numbered `first`.
  void add_distinct(std::initializer_list<View<const std::int64_t, 1>> rows, std::int64_t first,
                    embedding::TouchedRows& touched, std::vector<std::uint32_t>& ids) const {
    touched.clear();
    for (const View<const std::int64_t, 1>& each : rows) touched.mark(ctx_, each);
    touched.number(ctx_);
    const View<const std::int64_t, 1> distinct = touched.ids();
    for (std::int64_t i = 0; i < distinct.shape[0]; ++i) {
      ids.push_back(static_cast<std::uint32_t>(first + distinct(i)));
    }
  }

  const Context& ctx_;
  const Histories& histories_;
  PlannedFeatures features_;
  train::NegativeOptions options_;
  std::uint64_t seed_;
  train::NegativeSampler sampler_;
  std::vector<std::int64_t> shared_;
  std::vector<IdFinder> finders_;
};

}  // namespace

std::span<const std::int64_t> StepBatch::lengths_of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return std::span(lengths).subspan(static_cast<std::size_t>(bounds[r]),
                                    static_cast<std::size_t>(bounds[r + 1] - bounds[r]));
}

std::span<const std::uint32_t> StepBatch::ids_of(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return std::span(ids).subspan(static_cast<std::size_t>(id_bounds[r]),
                                static_cast<std::size_t>(id_bounds[r + 1] - id_bounds[r]));
}

std::vector<std::int64_t> target_counts(const Context& ctx, const Histories& histories,
                                        std::int64_t most) {
  const std::span<const data::Window> windows = histories.windows();
  const double share = histories.store() != nullptr
                           ? 1
                           : std::min(1.0, static_cast<double>(most) / histories.epoch_tokens());
  const auto counted =
      static_cast<std::int64_t>(std::ceil(share * static_cast<double>(windows.size())));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(histories.num_items()), 0);
  parallel_for(ctx.pool(), counted, [&](std::int64_t i, int) {
    const auto at = static_cast<std::size_t>(static_cast<double>(i) / share);
    const data::Window& window = windows[std::min(at, windows.size() - 1)];
    std::vector<std::int64_t> items(static_cast<std::size_t>(window.length) + 1);
    histories.read(window, items);
    for (std::size_t token = 1; token < items.size(); ++token) {
      std::atomic_ref(counts[static_cast<std::size_t>(items[token])])
          .fetch_add(1, std::memory_order_relaxed);
    }
  });
  return counts;
}

DrawnSteps draw_steps(const Context& ctx, const run::Config& config, const Histories& histories,
                      int ranks, int steps) {
  data::BatchPlanner planner(histories.windows(), run::plan_options(config, 0, ranks));
  IdDrawer drawer(ctx, config, histories);
  DrawnSteps drawn;
  const auto windows = static_cast<std::int64_t>(histories.windows().size());
  for (int step = 0; step < steps; ++step) {
    const std::int64_t begin = Trace::now_ns();
    const bool more = planner.next_step();
    StepBatch batch;
    batch.plan_seconds = seconds_since(begin);
    TGR_CHECK(more && (step > 0 || planner.state().window < windows), "an epoch of ", windows,
              " sequences is no whole step of ", ranks,
              " ranks; plan for fewer ranks or tokens, or with --data of more users");
    if (!more || planner.state().window == windows) break;  // the last step of an epoch is short
    const std::span<const std::int64_t> bounds = planner.bounds();
    const auto order =
        planner.order().subspan(static_cast<std::size_t>(bounds.front()),
                                static_cast<std::size_t>(bounds.back() - bounds.front()));
    for (const std::int64_t bound : bounds) batch.bounds.push_back(bound - bounds.front());
    for (const std::uint32_t window : order) {
      batch.lengths.push_back(histories.windows()[window].length);
    }
    drawer.draw(step, order, batch);
    drawn.steps.push_back(std::move(batch));
  }
  drawn.id_seconds = drawer.seconds();
  drawn.ids_marked = drawer.marked();
  return drawn;
}

}  // namespace turbogr::plan
