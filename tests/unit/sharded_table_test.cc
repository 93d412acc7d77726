// Sharded tables over thread ranks against one table that sees everything. Gradients are small
// multiples of 1/8, so that sums are exact in any order and results can be compared bit by bit.
#include "turbogr/embedding/sharded_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/core/context.h"
#include "turbogr/core/philox.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/topology.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/route.h"
#include "turbogr/embedding/row_exchange.h"
#include "turbogr/embedding/sharding.h"

namespace turbogr::embedding {
namespace {

using test::message_of;

constexpr std::int64_t kWidth = 6;

std::vector<std::int64_t> ids_of(int rank, int step, std::int64_t rows) {
  PhiloxStream random(77, static_cast<std::uint64_t>(step * 100 + rank));
  std::set<std::int64_t> ids;
  const std::uint64_t count = rank == 1 && step % 3 == 1 ? 0 : 1 + random.below(20);
  for (std::uint64_t i = 0; i < count; ++i) {
    ids.insert(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows))));
  }
  return {ids.begin(), ids.end()};
}

float gradient_of(int rank, int step, std::int64_t id, std::int64_t column) {
  const std::int64_t number = (7 * rank + 5 * step + 3 * id + column) % 17 - 8;
  return static_cast<float>(number) / 8.0f;
}

// All ranks' ids of a step and the sums of their gradients.
struct GlobalStep {
  std::vector<std::int64_t> ids;
  std::vector<float> gradient;
};
GlobalStep global_step(int ranks, int step, std::int64_t rows) {
  std::map<std::int64_t, std::vector<float>> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const std::int64_t id : ids_of(rank, step, rows)) {
      auto& sum = sums[id];
      sum.resize(kWidth);
      for (std::int64_t c = 0; c < kWidth; ++c) {
        sum[static_cast<std::size_t>(c)] += gradient_of(rank, step, id, c);
      }
    }
  }
  GlobalStep all;
  for (const auto& [id, sum] : sums) {
    all.ids.push_back(id);
    all.gradient.insert(all.gradient.end(), sum.begin(), sum.end());
  }
  return all;
}

void update_reference(const Context& ctx, ItemTable& table, const GlobalStep& step,
                      const AdamWSettings& options) {
  const auto count = static_cast<std::int64_t>(step.ids.size());
  table.update(ctx, {step.ids.data(), {count}},
               Rows<const float>(step.gradient.data(), count, kWidth, kWidth), options);
}

// A step of one table alone.
struct Trip {
  StepRoute route;
  RowExchange exchange;

  void ask(const Context& ctx, const TableCommunicators& communicators, ShardedTable& table,
           const std::vector<std::int64_t>& ids) {
    const View<const std::int64_t, 1> wanted = {ids.data(), {std::ssize(ids)}};
    route_ids(ctx, communicators, {&table, 1}, {&wanted, 1}, route);
  }
  template <class T>
  void fetch(const Context& ctx, const TableCommunicators& communicators, ShardedTable& table,
             Rows<T> out) {
    exchange.fetch(ctx, {&table, 1}, communicators, route);
    exchange.take_rows<T>(ctx, 0, out);
  }
  void return_gradients(const Context& ctx, const TableCommunicators& communicators,
                        ShardedTable& table, Rows<const float> gradient, std::int64_t pieces = 1) {
    exchange.return_gradients(ctx, {&table, 1}, communicators, route, {&gradient, 1}, pieces);
  }
  void update(const Context& ctx, ShardedTable& table, const AdamWSettings& settings,
              int num_replicas = 1) const {
    table.update(ctx, exchange.touched(0), exchange.gradients(0), settings, nullptr, num_replicas);
  }
};

struct Layout {
  int ranks;
  int group_size;
  std::string name() const {
    return std::to_string(ranks) + " ranks in groups of " + std::to_string(group_size);
  }
};

// Fetches, returns gradients and updates for some steps; every row fetched and the whole table at
// the end must be the reference's. `early`: rows are fetched before the update that precedes them
// and those it changed again after it.
void check_layout(const Layout& layout, const ShardedOptions& options, bool early,
                  std::int64_t pieces = 1) {
  const std::int64_t rows = options.rows;
  dist::run_threads(layout.ranks, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    dist::SparseGroups groups =
        dist::make_sparse_groups(world, dist::make_topology(world.nodes(), layout.group_size));
    const TableCommunicators communicators = {groups.group.get(), groups.replicas.get()};
    ShardedTable table(options, groups.group->rank(), groups.group->size());
    table.initialise(ctx);
    ItemTable reference(rows, kWidth, options.optimiser);
    reference.initialise(ctx, options.seed, options.start);

    AdamWSettings update = {.rate = 0.25, .decay = 0.125};
    Trip trip, previous;
    StepRefresh refresh;
    std::vector<float> fetched;
    for (int step = 0; step < 8; ++step) {
      const std::vector<std::int64_t> ids = ids_of(world.rank(), step, rows);
      const auto count = static_cast<std::int64_t>(ids.size());
      trip.ask(ctx, communicators, table, ids);
      fetched.assign(static_cast<std::size_t>(count * kWidth), NAN);
      const Rows<float> out(fetched.data(), count, kWidth, kWidth);
      if (early && step > 0) {
        trip.fetch(ctx, communicators, table, out);
        plan_refresh(communicators, {&table, 1}, trip.route, previous.route, refresh);
        previous.update(ctx, table, update);
        trip.exchange.fetch_changed(ctx, {&table, 1}, communicators, trip.route, refresh);
        trip.exchange.take_rows<float>(ctx, 0, out);
      } else {
        trip.fetch(ctx, communicators, table, out);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t c = 0; c < kWidth; ++c) {
          float wanted = reference.weights()(ids[static_cast<std::size_t>(i)], c);
          if (options.row_wire == DType::kBf16) wanted = static_cast<float>(bf16(wanted));
          if (options.row_wire == DType::kF16) wanted = static_cast<float>(f16(wanted));
          TGR_CHECK(out(i, c) == wanted, layout.name(), ", step ", step, ": row of id ",
                    ids[static_cast<std::size_t>(i)], " is ", out(i, c), ", wanted ", wanted);
        }
      }
      std::vector<float> gradient;
      for (const std::int64_t id : ids) {
        for (std::int64_t c = 0; c < kWidth; ++c) {
          gradient.push_back(gradient_of(world.rank(), step, id, c));
        }
      }
      trip.return_gradients(ctx, communicators, table,
                            Rows<const float>(gradient.data(), count, kWidth, kWidth), pieces);
      update.step = static_cast<double>(step + 1);
      if (!early) trip.update(ctx, table, update);
      update_reference(ctx, reference, global_step(world.size(), step, rows), update);
      std::swap(trip, previous);
    }
    if (early) previous.update(ctx, table, update);

    const auto check_part = [&](Tensor& part, Tensor& wanted, const char* name) {
      if (wanted.size() == 0) return;
      const Sharding& sharding = table.sharding();
      const auto row_bytes = part.bytes() / static_cast<std::size_t>(part.shape()[0]);
      for (std::int64_t row = 0; row < sharding.rows_of(communicators.group->rank()); ++row) {
        const std::int64_t id = sharding.id_of(communicators.group->rank(), row);
        TGR_CHECK(
            std::memcmp(part.data() + static_cast<std::size_t>(row) * row_bytes,
                        wanted.data() + static_cast<std::size_t>(id) * row_bytes, row_bytes) == 0,
            layout.name(), ": ", name, " of item ", id, " differ");
      }
    };
    check_part(table.own().weight_tensor(), reference.weight_tensor(), "weights");
    check_part(table.own().first_moment(), reference.first_moment(), "first moments");
    check_part(table.own().second_moment(), reference.second_moment(), "second moments");
  });
}

const Layout kLayouts[] = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {4, 4}, {4, 2}, {4, 1}, {6, 3}};

TEST(Sharding, DealsEveryRowOnceAndEvenly) {
  for (const Placement placement : {Placement::kRoundRobin, Placement::kHash}) {
    for (const std::int64_t rows : {0, 1, 2, 3, 7, 100, 1000, 1009}) {
      for (const int shards : {1, 2, 3, 8}) {
        const Sharding sharding(rows, shards, placement);
        std::vector<std::set<std::int64_t>> held(static_cast<std::size_t>(shards));
        for (std::int64_t id = 0; id < rows; ++id) {
          const int shard = sharding.shard_of(id);
          EXPECT_EQ(sharding.id_of(shard, sharding.row_of(id)), id);
          EXPECT_LT(sharding.row_of(id), sharding.rows_of(shard));
          held.at(static_cast<std::size_t>(shard)).insert(sharding.row_of(id));
        }
        for (int shard = 0; shard < shards; ++shard) {
          EXPECT_EQ(static_cast<std::int64_t>(held[static_cast<std::size_t>(shard)].size()),
                    sharding.rows_of(shard));
        }
      }
    }
  }
  // Ids that fall into step with the ranks are stirred apart.
  const Sharding stirred(32'000'000, 8, Placement::kHash);
  std::vector<int> counts(8);
  for (std::int64_t i = 0; i < 8000; ++i)
    ++counts[static_cast<std::size_t>(stirred.shard_of(8 * i))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_NE(message_of([] { placement_from_name("range"); }).find("round_robin or hash"),
            std::string::npos);
  EXPECT_EQ(placement_from_name("hash"), Placement::kHash);
}

TEST(ShardedTable, IsTheSingleTableInEveryLayout) {
  for (const Layout& layout : kLayouts) {
    for (const SparseOptimiser optimiser :
         {SparseOptimiser::kAdamW, SparseOptimiser::kAdaGrad, SparseOptimiser::kSgd}) {
      for (const Placement placement : {Placement::kRoundRobin, Placement::kHash}) {
        check_layout(layout,
                     {.rows = 41, .width = kWidth, .optimiser = optimiser, .placement = placement},
                     /*early=*/false);
      }
    }
  }
}

TEST(ShardedTable, PrefetchedRowsAreRefreshedWhereTheyChanged) {
  for (const Layout& layout : kLayouts) {
    check_layout(layout, {.rows = 41, .width = kWidth}, /*early=*/true);
  }
}

TEST(ShardedTable, GradientsMayReturnInPieces) {
  for (const Layout& layout : kLayouts) {
    for (const DType wire : {DType::kF32, DType::kBf16}) {
      for (const std::int64_t pieces : {2, 3}) {
        check_layout(layout, {.rows = 41, .width = kWidth, .gradient_wire = wire},
                     /*early=*/false, pieces);
      }
    }
  }
  const auto pieces_of = [](std::initializer_list<std::int64_t> widths) {
    std::vector<ShardedTable> tables;
    for (const std::int64_t width : widths) {
      tables.emplace_back(ShardedOptions{.rows = 3, .width = width}, 0, 1);
    }
    return gradient_pieces(tables);
  };
  EXPECT_EQ(pieces_of({16}), 1);
  EXPECT_EQ(pieces_of({64}), 2);
  EXPECT_EQ(pieces_of({256}), 4);
  EXPECT_EQ(pieces_of({256, 6}), 2);
  EXPECT_EQ(pieces_of({256, 7}), 1);
}

TEST(ShardedTable, RowsAndGradientsMayTravelInHalfTheBytes) {
  for (const DType wire : {DType::kBf16, DType::kF16}) {
    check_layout({4, 2},
                 {.rows = 41, .width = kWidth, .row_wire = wire, .gradient_wire = DType::kBf16},
                 /*early=*/false);
  }
  dist::run_threads(1, [](dist::Communicator& world) {
    // Straight into the model's format: the same as rounding on the way.
    const Context ctx({.threads = 1});
    ShardedTable table({.rows = 9, .width = kWidth, .row_wire = DType::kBf16}, 0, 1);
    table.initialise(ctx);
    Trip trip;
    const std::vector<std::int64_t> ids = {8, 2};
    std::vector<bf16> rows(2 * kWidth);
    const TableCommunicators communicators = {&world, nullptr};
    trip.ask(ctx, communicators, table, ids);
    trip.fetch(ctx, communicators, table, Rows<bf16>(rows.data(), 2, kWidth, kWidth));
    EXPECT_EQ(rows[0].bits, bf16(table.own().weights()(8, 0)).bits);
    EXPECT_EQ(rows[kWidth].bits, bf16(table.own().weights()(2, 0)).bits);
  });
}

TEST(ShardedTable, AveragedReplicasMeetAndAdaGradIsCorrected) {
  // Two groups of one: each takes its own step, then both hold the mean.
  const double epsilon = 1e-2;
  dist::run_threads(2, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    dist::SparseGroups groups =
        dist::make_sparse_groups(world, dist::make_topology(world.nodes(), 1));
    const TableCommunicators communicators = {groups.group.get(), groups.replicas.get()};
    ShardedTable table({.rows = 3,
                        .width = kWidth,
                        .optimiser = SparseOptimiser::kAdaGrad,
                        .replicas = ReplicaMode::kAverage},
                       0, 1);
    table.initialise(ctx);
    const float before = table.own().weights()(1, 2);
    const std::vector<std::int64_t> ids = {1};
    const float size = world.rank() == 0 ? 2.0f : 6.0f;
    const std::vector<float> gradient(kWidth, size);
    Trip trip;
    trip.ask(ctx, communicators, table, ids);
    trip.return_gradients(ctx, communicators, table,
                          Rows<const float>(gradient.data(), 1, kWidth, kWidth));
    trip.update(ctx, table, {.rate = 0.5, .epsilon = epsilon}, communicators.num_replicas());
    const auto step_of = [&](double g) { return 0.5 * g / std::sqrt(g * g / 2 + epsilon); };
    EXPECT_NEAR(table.own().weights()(1, 2), before - step_of(size), 1e-6);
    table.average(ctx, communicators);
    EXPECT_NEAR(table.own().weights()(1, 2), before - (step_of(2) + step_of(6)) / 2, 1e-6);
    EXPECT_NEAR((table.own().second_moment().view<float, 1>()(1)), (4.0 + 36.0) / 2, 1e-5);
  });
}

TEST(ShardedTable, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  const std::unique_ptr<dist::Communicator> self = dist::make_self();
  const TableCommunicators communicators = {self.get(), nullptr};
  ShardedTable table({.rows = 4, .width = kWidth}, 0, 1);
  Trip trip;
  EXPECT_NE(message_of([&] {
              trip.ask(ctx, communicators, table, {1, 4});
            }).find("id 4 at position 1; the table has 4 rows"),
            std::string::npos);
  trip.ask(ctx, communicators, table, {1});
  std::vector<float> rows(3 * kWidth);
  EXPECT_NE(message_of([&] {
              trip.fetch(ctx, communicators, table, Rows<float>(rows.data(), 3, kWidth, kWidth));
            }).find("rows wanted in [3, 6]; they are [1, 6]"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              trip.return_gradients(ctx, communicators, table,
                                    Rows<const float>(rows.data(), 1, 3, kWidth));
            }).find("gradients are [1, 3]; wanted [1, 6]"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              trip.return_gradients(ctx, communicators, table,
                                    Rows<const float>(rows.data(), 1, kWidth, kWidth), 4);
            }).find("gradients in 4 pieces of 6 columns"),
            std::string::npos);
  ShardedTable half({.rows = 4, .width = kWidth}, 1, 2);
  EXPECT_NE(
      message_of([&] { trip.ask(ctx, communicators, half, {1}); }).find("shard here is 1 of 2"),
      std::string::npos);
  EXPECT_NE(message_of([] { ShardedTable({.row_wire = DType::kI64}, 0, 1); }).find("travel as i64"),
            std::string::npos);
  EXPECT_NE(message_of([] { ShardedTable({.gradient_wire = DType::kF16}, 0, 1); }).find("as f16"),
            std::string::npos);
  EXPECT_NE(message_of([] { ShardedTable({}, 2, 2); }).find("shard 2 of 2"), std::string::npos);
  EXPECT_NE(message_of([] { replica_mode_from_name("late"); }).find("exact or average"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::embedding
