// All tables of a step in one exchange: what each would be alone, bit for bit, in collectives whose
// number does not go with the number of tables.
#include "turbogr/embedding/row_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/timed_communicator.h"
#include "turbogr/core/context.h"
#include "turbogr/core/philox.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/sharded_rows.h"

namespace turbogr::embedding {
namespace {

constexpr int kSteps = 4;

// Tables of different sizes, widths, formats and optimisers.
std::vector<TableOptions> some_tables(ReplicaMode replicas) {
  const bool exact = replicas == ReplicaMode::kExact;  // a mean needs tables in f32
  return {{.rows = 61, .width = 12, .seed = 3},
          {.rows = 7,
           .width = 4,
           .optimiser = SparseOptimiser::kAdaGrad,
           .seed = 4,
           .dtype = exact ? DType::kBf16 : DType::kF32},
          {.rows = 200, .width = 32, .optimiser = SparseOptimiser::kSgd, .seed = 5},
          {.rows = 30, .width = 8, .seed = 6, .dtype = exact ? DType::kF16 : DType::kF32}};
}

// Rows that a rank touches in a step: by table, and now and then none.
void touch(const Context& ctx, std::uint64_t table, int rank, int step, TouchedRows& touched) {
  PhiloxStream random(1000 + table, static_cast<std::uint64_t>(100 * step + rank));
  std::vector<std::int64_t> ids(random.below(4) == 0 ? 0 : 3 + random.below(30));
  for (std::int64_t& id : ids) {
    id = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(touched.rows())));
  }
  touched.clear();
  touched.mark(ctx, {ids.data(), {std::ssize(ids)}});
  touched.number(ctx);
}

// A row source with the steps' ids and rows of its tables, `first` being the first one's number.
template <class T>
struct Steps {
  Steps(const Context& ctx, dist::Communicator& world, std::span<const TableOptions> given,
        std::uint64_t first_table, const RankLayout& layout)
      : source(ctx, ctx, world, {given.begin(), given.end()}, Device::kCpu, layout),
        first(first_table),
        rank(world.rank()) {
    source.initialise(ctx);
    const std::vector<std::int64_t> most(given.size(), 100);
    for (Flight& flight : flights) {
      flight.request = source.make_request(ctx, most);
      for (const TableOptions& table : given) flight.touched.emplace_back(table.rows);
      flight.memory.resize(given.size());
      flight.gradient_memory.resize(given.size());
    }
    settings.assign(given.size(), {.rate = 0.1, .decay = 0.01});
    squares.resize(given.size());
  }

  struct Flight {
    std::unique_ptr<RowRequest> request;
    std::vector<TouchedRows> touched;
    std::vector<std::vector<T>> memory;
    std::vector<std::vector<float>> gradient_memory;
    std::vector<StepRows<T>> rows;
    std::vector<Rows<const float>> gradients;
  };

  Flight& fetched(const Context& ctx, int step) {
    Flight& flight = flights[step % 2];
    flight.rows.clear();
    flight.gradients.clear();
    for (std::size_t t = 0; t < flight.touched.size(); ++t) {
      touch(ctx, first + t, rank, step, flight.touched[t]);
      const std::int64_t count = flight.touched[t].ids().shape[0];
      const std::int64_t width = source.shard(t).width();
      flight.memory[t].resize(static_cast<std::size_t>(count * width));
      flight.rows.push_back({{flight.memory[t].data(), count, width, width}, {}});
      PhiloxStream random(first + t, static_cast<std::uint64_t>(1000 * step + rank));
      auto& values = flight.gradient_memory[t];
      values.resize(static_cast<std::size_t>(count * width));
      for (float& value : values) value = static_cast<float>(random.normal());
      flight.gradients.push_back({values.data(), count, width, width});
    }
    source.prepare(ctx, Lane::kThis, {.step = step, .tables = flight.touched}, *flight.request);
    source.fetch(ctx, Lane::kThis, *flight.request, flight.rows);
    return flight;
  }
  void give(const Context& ctx, Flight& flight, Part part) {
    source.return_gradients(ctx, Lane::kThis, *flight.request, part, flight.gradients,
                            squares.data());
    seen_squares.insert(seen_squares.end(), squares.begin(), squares.end());
    source.update(ctx, Lane::kThis, *flight.request, part, settings, nullptr);
  }
  void refresh(const Context& ctx, Flight& next, Flight& current) {
    source.plan_refresh(ctx, Lane::kThis, *next.request, *current.request, /*split=*/true);
    give(ctx, current, Part::kNextReads);
    source.refresh(ctx, Lane::kThis, *next.request, next.rows);
    give(ctx, current, Part::kRest);
  }

  ShardedRows<T> source;
  std::uint64_t first;
  int rank;
  Flight flights[2];
  std::vector<AdamWSettings> settings;
  std::vector<double> squares, seen_squares;
};

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::equal(a.data(), a.data() + a.bytes(), b.data());
}

// Trains all tables together and each alone. `ahead`: rows are fetched before the update before
// them, and those that it changes again.
template <class T>
void expect_together_as_alone(int ranks, const RankLayout& given, int group, bool ahead) {
  const std::string what = std::to_string(ranks) + " ranks in groups of " + std::to_string(group);
  dist::run_threads(ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    RankLayout layout = given;
    layout.topology = dist::make_topology(world.nodes(), group);
    const std::vector<TableOptions> tables = some_tables(layout.replicas);
    Steps<T> together(ctx, world, tables, 0, layout);
    std::vector<std::unique_ptr<Steps<T>>> alone;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      alone.push_back(std::make_unique<Steps<T>>(ctx, world, std::span(&tables[t], 1), t, layout));
    }
    const auto check_rows = [&](int step) {
      for (std::size_t t = 0; t < tables.size(); ++t) {
        const std::vector<T>& a = together.flights[step % 2].memory[t];
        const std::vector<T>& b = alone[t]->flights[step % 2].memory[0];
        TGR_CHECK(a.size() == b.size() &&
                      (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0),
                  what, ": rows of table ", t, " in step ", step);
      }
    };
    const auto run = [&](Steps<T>& steps, int step) {
      if (!ahead) return steps.give(ctx, steps.fetched(ctx, step), Part::kAll);
      auto& next = steps.fetched(ctx, step);
      if (step > 0) steps.refresh(ctx, next, steps.flights[(step + 1) % 2]);
    };
    for (int step = 0; step < kSteps; ++step) {
      run(together, step);
      for (auto& each : alone) run(*each, step);
      check_rows(step);
    }
    together.source.settle(ctx);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      alone[t]->source.settle(ctx);
      ItemTable &a = together.source.shard(t), &b = alone[t]->source.shard(0);
      TGR_CHECK(same_bytes(a.weight_tensor(), b.weight_tensor()) &&
                    same_bytes(a.first_moment(), b.first_moment()) &&
                    same_bytes(a.second_moment(), b.second_moment()),
                what, ": table ", t, " differs");
      for (std::size_t i = 0; i < alone[t]->seen_squares.size(); ++i) {
        TGR_CHECK(together.seen_squares[i * tables.size() + t] == alone[t]->seen_squares[i], what,
                  ": squares of table ", t);
      }
      // And something has been learnt.
      ShardedTable& table = together.source.table(t);
      ShardedTable fresh(table.options(),
                         layout.topology.place_of[static_cast<std::size_t>(world.rank())], group);
      fresh.initialise(ctx);
      TGR_CHECK(!same_bytes(fresh.own().weight_tensor(), a.weight_tensor()), what, ": table ", t,
                " is as it was");
    }
  });
}

struct RankShape {
  int ranks, group;
};
constexpr RankShape kShapes[] = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {4, 4}, {4, 2}};

TEST(RowExchange, TablesTogetherAreWhatTheyAreAlone) {
  for (const auto& [ranks, group] : kShapes) {
    for (const bool ahead : {false, true}) {
      for (const bool device : {false, true}) {
        expect_together_as_alone<float>(ranks, {.device_rows = device}, group, ahead);
      }
      for (const DType rows : {DType::kBf16, DType::kF16}) {
        const RankLayout half = {.row_wire = rows, .gradient_wire = DType::kBf16};
        expect_together_as_alone<float>(ranks, half, group, ahead);
        expect_together_as_alone<bf16>(ranks, half, group, ahead);
      }
    }
    expect_together_as_alone<float>(
        ranks, {.placement = Placement::kHash, .replicas = ReplicaMode::kAverage}, group, false);
  }
}

// Of one step, serial or ahead, on this rank.
std::int64_t collectives_of(dist::Communicator& launched, std::size_t num_tables, int group,
                            bool ahead) {
  const Context ctx({.threads = 1});
  bench::TimedCommunicator world(launched);
  const std::vector<TableOptions> tables(num_tables, {.rows = 50, .width = 16});
  Steps<float> steps(ctx, world, tables, 0,
                     {.topology = dist::make_topology(world.nodes(), group)});
  auto& flight = steps.fetched(ctx, 0);
  if (!ahead) steps.give(ctx, flight, Part::kAll);
  world.reset();
  auto& next = steps.fetched(ctx, 1);
  if (ahead) {
    steps.refresh(ctx, next, flight);
  } else {
    steps.give(ctx, next, Part::kAll);
  }
  return world.totals().collectives;
}

// plan/simulator.cc simulates these collectives, one by one.
TEST(RowExchange, CollectivesDoNotGoWithTheNumberOfTables) {
  for (const std::size_t tables : {1u, 2u, 9u}) {
    dist::run_threads(4, [&](dist::Communicator& world) {
      // Counts, ids, rows, gradients; of replicas: counts, numbers of rows, sums.
      TGR_CHECK(collectives_of(world, tables, 4, false) == 4, tables, " tables");
      TGR_CHECK(collectives_of(world, tables, 2, false) == 4 + 3, tables, " tables in 2 groups");
      // Counts, ids, rows; twice counts and places; gradients in two parts; rows that changed.
      TGR_CHECK(collectives_of(world, tables, 4, true) == 3 + 4 + 2 + 1, tables, " tables ahead");
    });
  }
}

}  // namespace
}  // namespace turbogr::embedding
