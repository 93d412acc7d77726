#include "turbogr/plan/step_routes.h"

#include <memory>
#include <utility>

#include "turbogr/plan/row_set.h"

namespace turbogr::plan {

TableShards::TableShards(const LayoutOptions& layout) : first_rows_({0}) {
  std::vector<std::int64_t> tables = {layout.rows};
  tables.insert(tables.end(), layout.feature_rows.begin(), layout.feature_rows.end());
  for (const std::int64_t rows : tables) {
    first_rows_.push_back(first_rows_.back() + rows);
    shards_.emplace_back(rows, layout.topology.group_size, layout.placement);
  }
}

std::vector<std::vector<int>> members_of(const dist::Topology& topology) {
  std::vector<std::vector<int>> members(
      static_cast<std::size_t>(topology.num_groups()),
      std::vector<int>(static_cast<std::size_t>(topology.group_size)));
  for (std::size_t rank = 0; rank < topology.group_of.size(); ++rank) {
    members[static_cast<std::size_t>(topology.group_of[rank])]
           [static_cast<std::size_t>(topology.place_of[rank])] = static_cast<int>(rank);
  }
  return members;
}

namespace {

// Rows that some rank touches in a step.
std::unique_ptr<RowSet> touched_by_all(const Context& ctx, const StepBatch& step,
                                       std::int64_t rows) {
  std::vector<RowSet> of_thread(static_cast<std::size_t>(ctx.threads()), RowSet(rows));
  parallel_for(ctx.pool(), step.ranks(), [&](std::int64_t rank, int worker) {
    RowSet& own = of_thread[static_cast<std::size_t>(worker)];
    for (const std::uint32_t id : step.ids_of(static_cast<int>(rank))) own.add(id);
  });
  auto all = std::make_unique<RowSet>(rows);
  for (const RowSet& each : of_thread) all->add_all(each);
  return all;
}

void make_room(RouteCounts& counts, int ranks, int group_size) {
  counts.group_size = group_size;
  counts.asked.assign(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(group_size), 0);
  counts.owned.assign(static_cast<std::size_t>(ranks), 0);
  counts.touched.assign(static_cast<std::size_t>(group_size), 0);
}

// Ids that are counted: all, or where `of` is not null those in it.
struct CountedIds {
  RouteCounts* counts;
  const RowSet* of;
  bool has(std::uint32_t id) const { return of == nullptr || of->has(id); }
};

class Router {
 public:
  Router(const Context& ctx, const LayoutOptions& layout)
      : ctx_(ctx),
        layout_(layout),
        tables_(layout),
        members_(members_of(layout.topology)),
        unions_(static_cast<std::size_t>(ctx.threads()), RowSet(tables_.num_rows())) {
    if (layout.machine_ranks > 0) machines_ = unions_;
  }

  StepRoutes route(const StepBatch& step, const RowSet& own, const RowSet* before,
                   const RowSet* after) {
    StepRoutes routes;
    std::vector<CountedIds> kinds = {{&routes.all, nullptr}};
    if (after != nullptr) kinds.push_back({&routes.next_reads, after});
    if (before != nullptr) kinds.push_back({&routes.changed, before});
    for (const CountedIds& kind : kinds) {
      make_room(*kind.counts, step.ranks(), layout_.topology.group_size);
      if (layout_.machine_ranks > 0) {
        kind.counts->merged.assign(
            kind.counts->asked.size() / static_cast<std::size_t>(layout_.machine_ranks), 0);
      }
    }
    parallel_for(ctx_.pool(), std::ssize(members_), [&](std::int64_t group, int worker) {
      count_group(step, members_[static_cast<std::size_t>(group)], kinds,
                  unions_[static_cast<std::size_t>(worker)]);
      if (layout_.machine_ranks > 0) {
        count_machines(step, static_cast<std::size_t>(group), kinds,
                       machines_[static_cast<std::size_t>(worker)]);
      }
    });
    own.for_each([&](std::uint32_t id) {
      const auto place = tables_.place_of(id);
      for (const CountedIds& kind : kinds) kind.counts->touched[place] += kind.has(id) ? 1 : 0;
    });
    return routes;
  }

 private:
  // `together` is empty before and after.
  void count_group(const StepBatch& step, const std::vector<int>& members,
                   const std::vector<CountedIds>& kinds, RowSet& together) {
    const auto size = static_cast<std::size_t>(layout_.topology.group_size);
    for (const int rank : members) {
      for (const std::uint32_t id : step.ids_of(rank)) {
        const auto place = tables_.place_of(id);
        const bool first = together.add(id);
        for (const CountedIds& kind : kinds) {
          if (!kind.has(id)) continue;
          ++kind.counts->asked[static_cast<std::size_t>(rank) * size + place];
          if (first) ++kind.counts->owned[static_cast<std::size_t>(members[place])];
        }
      }
    }
    for (const int rank : members) together.take_out(step.ids_of(rank));
  }

  // `together` is empty before and after.
  void count_machines(const StepBatch& step, std::size_t group,
                      const std::vector<CountedIds>& kinds, RowSet& together) {
    const std::vector<int>& members = members_[group];
    const auto size = members.size(), ranks = static_cast<std::size_t>(layout_.machine_ranks);
    for (std::size_t first = 0; first < size; first += ranks) {
      const std::size_t machine = (group * size + first) / ranks;
      for (std::size_t i = first; i < first + ranks; ++i) {
        for (const std::uint32_t id : step.ids_of(members[i])) {
          if (!together.add(id)) continue;
          const auto place = tables_.place_of(id);
          for (const CountedIds& kind : kinds) {
            kind.counts->merged[machine * size + place] += kind.has(id) ? 1 : 0;
          }
        }
      }
      for (std::size_t i = first; i < first + ranks; ++i) {
        together.take_out(step.ids_of(members[i]));
      }
    }
  }

  const Context& ctx_;
  const LayoutOptions& layout_;
  TableShards tables_;
  std::vector<std::vector<int>> members_;  // of each group, by place
  std::vector<RowSet> unions_, machines_;  // one a thread
};

}  // namespace

std::vector<StepRoutes> route_steps(const Context& ctx, const LayoutOptions& layout,
                                    std::span<const StepBatch> steps) {
  Router router(ctx, layout);
  std::vector<StepRoutes> routes;
  std::unique_ptr<RowSet> before, own, after;
  const std::int64_t rows = TableShards(layout).num_rows();
  if (!steps.empty()) own = touched_by_all(ctx, steps[0], rows);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    if (step + 1 < steps.size()) after = touched_by_all(ctx, steps[step + 1], rows);
    routes.push_back(router.route(steps[step], *own, before.get(), after.get()));
    before = std::move(own);
    own = std::move(after);
  }
  return routes;
}

}  // namespace turbogr::plan
