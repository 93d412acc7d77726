#include "turbogr/plan/step_batches.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <numeric>

#include "turbogr/core/check.h"
#include "turbogr/data/batching.h"
#include "turbogr/embedding/touched_rows.h"
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
  embedding::TouchedRows touched;
  std::vector<std::int64_t> items;
  std::vector<std::int64_t> negatives;
  double seconds = 0;
  std::int64_t marked = 0;
};

class IdDrawer {
 public:
  IdDrawer(const Context& ctx, const run::Config& config, const Histories& histories)
      : ctx_(ctx),
        histories_(histories),
        options_(run::negative_options(config.negatives)),
        seed_(static_cast<std::uint64_t>(config.run.seed)),
        sampler_(uniform(options_), histories.num_items()) {
    for (int thread = 0; thread < ctx.threads(); ++thread) {
      finders_.push_back({embedding::TouchedRows(histories.num_items()), {}, {}, 0, 0});
    }
  }

  // The distinct ids of every rank: `windows` of the step are those of `bounds`.
  void draw(std::int64_t step, std::span<const std::uint32_t> order, StepBatch& batch) {
    sampler_.begin_step({seed_, static_cast<std::uint64_t>(step)});
    sampler_.finish_positives();
    if (options_.shared) {
      shared_.resize(static_cast<std::size_t>(options_.count));
      sampler_.draw_shared(ctx_, 0, {shared_.data(), {std::ssize(shared_)}});
    }
    const int ranks = batch.ranks();
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
  // Which rows are drawn more often than others changes what is touched twice a little; a plan
  // takes them to be drawn evenly.
  static train::NegativeOptions uniform(train::NegativeOptions options) {
    options.kind = train::NegativeKind::kUniform;
    return options;
  }

  void find(std::span<const std::uint32_t> order, const StepBatch& batch, int rank,
            IdFinder& finder, std::vector<std::uint32_t>& ids) {
    const auto first = static_cast<std::size_t>(batch.bounds[static_cast<std::size_t>(rank)]);
    const auto end = static_cast<std::size_t>(batch.bounds[static_cast<std::size_t>(rank) + 1]);
    finder.items.clear();
    for (std::size_t at = first; at < end; ++at) {
      const data::Window& window = histories_.windows()[order[at]];
      const std::size_t before = finder.items.size();
      finder.items.resize(before + static_cast<std::size_t>(window.length) + 1);
      histories_.read(window, std::span(finder.items).subspan(before));
    }
    if (!options_.shared) {  // keyed by where the tokens are in the step
      const std::int64_t tokens = std::accumulate(
          batch.lengths.begin() + static_cast<std::ptrdiff_t>(first),
          batch.lengths.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{0});
      std::vector<std::uint64_t> keys(static_cast<std::size_t>(tokens));
      std::iota(keys.begin(), keys.end(), static_cast<std::uint64_t>(rank) << 32);
      finder.negatives.resize(static_cast<std::size_t>(tokens * options_.count));
      sampler_.draw_own(ctx_, {keys.data(), {tokens}},
                        {finder.negatives.data(), {tokens, options_.count}});
    }
    const std::vector<std::int64_t>& negatives = options_.shared ? shared_ : finder.negatives;
    const double begin = thread_seconds();
    finder.touched.clear();
    finder.touched.mark(ctx_, {negatives.data(), {std::ssize(negatives)}});
    finder.touched.mark(ctx_, {finder.items.data(), {std::ssize(finder.items)}});
    finder.touched.number(ctx_);
    const View<const std::int64_t, 1> touched = finder.touched.ids();
    ids.assign(touched.data, touched.data + touched.shape[0]);
    finder.seconds += thread_seconds() - begin;
    finder.marked += std::ssize(negatives) + std::ssize(finder.items);
  }

  const Context& ctx_;
  const Histories& histories_;
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

DrawnSteps draw_steps(const Context& ctx, const run::Config& config, const Histories& histories,
                      int ranks, int steps) {
  TGR_CHECK(histories.num_items() < std::numeric_limits<std::uint32_t>::max(), "a table of ",
            histories.num_items(), " rows; a plan numbers them with 32 bits");
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
