#include "turbogr/plan/simulator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/model/flops.h"
#include "turbogr/plan/cluster_clock.h"
#include "turbogr/plan/cluster_collectives.h"
#include "turbogr/plan/stage_program.h"

namespace turbogr::plan {
namespace {

using embedding::Lane;
using embedding::Part;
using Way = ClusterCollectives::Way;
using Ids = ClusterCollectives::Ids;
using Relayed = ClusterCollectives::Relayed;
namespace stages = train::stages;

constexpr double kNano = 1e-9;
// Buckets that dense gradients of a layer fall into at most, whatever their size: a matrix is never
// cut, and vectors go with the matrix behind them.
double most_buckets(const model::ModelOptions& model) {
  return model.kind == model::ModelKind::kFuxi ? 5 : 2;
}
// Bytes a value to bring rows into the order they travel in, or back, beside the wire's.
constexpr double kPackBytes = 4;

class SimulatedCluster {
 public:
  SimulatedCluster(const SimulationSetup& setup, std::span<const StepBatch> steps,
                   std::span<const StepRoutes> routes)
      : setup_(setup),
        steps_(steps),
        routes_(routes),
        cost_(setup.gpu, setup.work),
        collectives_(setup),
        clock_(collectives_.clock()),
        network_(collectives_.network()),
        taken_(setup.nodes.size(), 0),
        device_seconds_(setup.nodes.size(), 0),
        host_seconds_(setup.nodes.size(), 0),
        host_link_seconds_(setup.nodes.size(), 0) {
    for (const StepBatch& step : steps) sections_.push_back(sections_of(step));
  }

  Simulation run() {
    const StageProgram program =
        make_program({.order = {setup_.schedule, setup_.clips, /*warmup=*/0},
                      .steps = static_cast<int>(steps_.size()),
                      .layers = setup_.work.model.layers,
                      .fetches_ahead = ranks() > 1});
    std::size_t next = 0, blocks = 0;
    for (std::size_t at = 0; at < program.computing.size();) {
      const StageCall& call = program.computing[at];
      const bool ahead_left = next < program.begins[blocks];
      // In the order of time, so that links serve who comes first.
      if (ahead_left &&
          (call.act == Act::kJoin || clock_.mean(Lane::kNext) <= clock_.mean(Lane::kThis))) {
        act(program.ahead[next++]);
        continue;
      }
      if (call.act == Act::kStartAhead) {
        clock_.start_ahead();
        ++blocks;
      } else {
        act(call);
      }
      ++at;
    }
    return result();
  }

 private:
  int ranks() const { return static_cast<int>(setup_.nodes.size()); }
  bool exact_replicas() const { return collectives_.exact_replicas(); }
  bool by_devices() const { return setup_.devices && !setup_.staged; }
  Memory memory() const { return by_devices() ? Memory::kDevice : Memory::kHost; }
  double host_seconds(double ids) const { return ids * setup_.gpu.host_ids_ns.value * kNano; }

  double host_link_seconds(std::int64_t rows, double bytes) const {
    return static_cast<double>(rows) * bytes / (setup_.gpu.host_link_gbs.value * 1e9);
  }
  // The same as part of what a rank's device is said to do, which then waits for the link.
  double over_host_link(int rank, std::int64_t rows, double bytes) {
    const double seconds = host_link_seconds(rows, bytes);
    host_link_seconds_[static_cast<std::size_t>(rank)] += seconds;
    device_seconds_[static_cast<std::size_t>(rank)] -= seconds * setup_.sharing;
    return seconds;
  }

  std::vector<SectionSeconds> sections_of(const StepBatch& step) const {
    std::vector<SectionSeconds> all;
    all.reserve(setup_.nodes.size());
    for (int rank = 0; rank < ranks(); ++rank) {
      all.push_back(cost_.of({.lengths = step.lengths_of(rank),
                              .rows = std::ssize(step.ids_of(rank)),
                              .feature_reads = step.feature_reads_of(rank)}));
    }
    return all;
  }

  // How much longer a rank computes in a step than it should.
  double slowness(int step, int rank) const {
    const Disturbances& d = setup_.disturbances;
    double factor = rank == d.slow_rank ? d.slow_factor : 1;
    if (d.jitter > 0) {
      PhiloxStream random(
          d.seed, (static_cast<std::uint64_t>(step) << 32) | static_cast<std::uint64_t>(rank));
      factor *= std::exp(d.jitter * random.normal());
    }
    return factor;
  }

  void act(const StageCall& call) {
    switch (call.act) {
      case Act::kPrepare:
        return prepare(call);
      case Act::kFetch:
        return move_rows(stages::kFetch, call, routes(call).all);
      case Act::kForward:
        return compute(call, stages::kCompute, [](const SectionSeconds& s) { return s.forward(); });
      case Act::kBackward:
        return backward(call);
      case Act::kReturn:
        return return_rows(call);
      case Act::kDenseSums:
        return dense_sums(call);
      case Act::kDenseUpdate:
        return compute(call, stages::kDenseUpdate,
                       [](const SectionSeconds& s) { return s.optimiser; });
      case Act::kRowUpdate:
        return update_rows(call);
      case Act::kPlanRefresh:
        return plan_refresh(call);
      case Act::kRefresh:
        return move_rows(stages::kRefresh, call, routes(call).changed);
      case Act::kJoin:
        return clock_.join();
      case Act::kStepEnd:
        return end_step();
      case Act::kStartAhead:
        return;
    }
  }

  const StepRoutes& routes(const StageCall& call) const {
    return routes_[static_cast<std::size_t>(call.step)];
  }

  // Every rank is busy for seconds_of(rank); where it is the step's computing, what ran beside it
  // has taken from it.
  template <class Seconds>
  void local(const train::Stage& stage, Lane lane, Seconds&& seconds_of, bool computes = false) {
    const std::span<double> times = clock_.times(lane);
    const std::vector<double> begin(times.begin(), times.end());
    const bool on_device = setup_.devices && !stage.on_host;
    // A CPU's threads do both lanes' work; a GPU's host has threads of its own.
    const bool beside = lane == Lane::kNext && (on_device || !setup_.devices);
    const double turns = on_device ? setup_.sharing : 1;
    std::vector<double>& busy = setup_.devices && stage.on_host ? host_seconds_ : device_seconds_;
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const double seconds = turns * seconds_of(rank);
      busy[r] += seconds;
      times[r] += seconds + (computes ? std::exchange(taken_[r], 0.0) : 0.0);
      if (beside) taken_[r] += seconds;
    }
    clock_.passed(stage, lane, begin, {});
  }

  template <class Part_>
  void compute(const StageCall& call, const train::Stage& stage, Part_&& part_of) {
    const auto& sections = sections_[static_cast<std::size_t>(call.step)];
    local(
        stage, call.lane,
        [&](int rank) {
          return slowness(call.step, rank) * part_of(sections[static_cast<std::size_t>(rank)]);
        },
        /*computes=*/true);
  }

  // The hosts look at ids_of(rank) ids. Of a GPU's step they do it while the device is busy with
  // the one before.
  template <class Ids_>
  void look_at_ids(const train::Stage& stage, const StageCall& call, Ids_&& ids_of) {
    if (!hidden(call)) {
      local(stage, call.lane, [&](int rank) { return host_seconds(ids_of(rank)); });
      return;
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      host_seconds_[static_cast<std::size_t>(rank)] += host_seconds(ids_of(rank));
    }
  }
  bool hidden(const StageCall& call) const { return setup_.devices && call.lane == Lane::kThis; }

  // Rows of all replicas that the owner of a place learns of.
  double rows_of_replicas(const RouteCounts& counts, int rank) const {
    if (!exact_replicas()) return static_cast<double>(counts.owned[static_cast<std::size_t>(rank)]);
    const int place = setup_.topology.place_of[static_cast<std::size_t>(rank)];
    double rows = 0;
    for (const int replica : collectives_.replicas_of(place)) {
      rows += static_cast<double>(counts.owned[static_cast<std::size_t>(replica)]);
    }
    return rows;
  }

  void prepare(const StageCall& call) {
    const StepBatch& batch = steps_[static_cast<std::size_t>(call.step)];
    if (!batch.positives.empty() && ranks() > 1) {
      collectives_.gather_all(stages::kPositives, call.lane, batch.positives, 8);
    }
    look_at_ids(stages::kDraw, call, [&](int rank) {
      return ids_marked(setup_.work, batch.lengths_of(rank)) +
             static_cast<double>(batch.feature_reads_of(rank));
    });
    if (ranks() == 1) return;
    const RouteCounts& all = routes(call).all;
    collectives_.small_sum(stages::kIds, call.lane, 3, Memory::kHost);
    collectives_.exchange_counts(stages::kIds, call.lane);
    exchange(stages::kIds, call.lane, {all}, 8, Way::kToOwners, Memory::kHost,
             [&](const Relayed& relay) {  // merged
               return hidden(call) ? 0.0 : host_seconds(static_cast<double>(relay.taken));
             });
    if (exact_replicas()) {
      collectives_.gather_counts(stages::kIds, call.lane);
      collectives_.gather_rows(stages::kIds, call.lane, {all}, 4, Memory::kHost);
    }
    // Requests and replicas' rows are sorted out by the host.
    look_at_ids(stages::kIds, call, [&](int rank) {
      return static_cast<double>(requested({all}, rank)) + rows_of_replicas(all, rank);
    });
  }

  double wire_bytes(DType wire) const {
    return static_cast<double>(setup_.work.model.width) * static_cast<double>(size_of(wire));
  }

  // Between ranks and owners, in one hop or in two: relay_seconds(relayed) is what relays take
  // between the hops.
  template <class Seconds>
  void exchange(const train::Stage& stage, Lane lane, const Ids& ids, double bytes, Way way,
                Memory memory, Seconds&& relay_seconds) {
    if (!collectives_.two_hops()) {
      return collectives_.group_exchange(stage, lane, ids, bytes, way, memory);
    }
    const auto hop = [&](bool inside) {
      inside ? collectives_.hop_inside(stage, lane, ids, bytes, way, memory)
             : collectives_.hop_between(stage, lane, ids, bytes, way, memory);
    };
    hop(way == Way::kToOwners);
    local(stage, lane, [&](int rank) { return relay_seconds(collectives_.relayed(ids, rank)); });
    hop(way != Way::kToOwners);
  }

  // Requests that an owner has: in one hop about as many as it makes itself.
  std::int64_t requested(const Ids& ids, int rank) const {
    return collectives_.two_hops() ? collectives_.relayed(ids, rank).requested
                                   : asked_in_all(ids, rank);
  }

  void move_rows(const train::Stage& stage, const StageCall& call, const RouteCounts& counts) {
    if (ranks() == 1) return;
    const auto wire = static_cast<double>(size_of(setup_.row_wire));
    const Ids ids = {counts};
    exchange(stage, call.lane, ids, wire_bytes(setup_.row_wire), Way::kFromOwners, memory(),
             [&](const Relayed& relay) {  // a copy for each that asked
               return cost_.row_seconds(relay.taken, 2 * wire);
             });
    local(stage, call.lane, [&](int rank) {  // packed by owners, unpacked by who asked
      return over_host_link(rank, requested(ids, rank), setup_.host_row_bytes) +
             cost_.row_seconds(requested(ids, rank) + asked_in_all(ids, rank), kPackBytes + wire);
    });
  }

  static std::int64_t asked_in_all(const RouteCounts& counts, int rank) {
    const std::span<const std::int32_t> asked = counts.asked_by(rank);
    return std::accumulate(asked.begin(), asked.end(), std::int64_t{0});
  }
  static std::int64_t asked_in_all(const Ids& ids, int rank) {
    return asked_in_all(ids.ids, rank) - (ids.but == nullptr ? 0 : asked_in_all(*ids.but, rank));
  }

  void return_rows(const StageCall& call) {
    if (ranks() == 1) return;
    const StepRoutes& route = routes(call);
    const RouteCounts& counts = call.part == Part::kNextReads ? route.next_reads : route.all;
    const RouteCounts* but = call.part == Part::kRest ? &route.next_reads : nullptr;
    const double bytes = wire_bytes(setup_.gradient_wire);
    const double value = kPackBytes + static_cast<double>(size_of(setup_.gradient_wire));
    const Ids ids = {counts, but};
    exchange(stages::kReturn, call.lane, ids, bytes, Way::kToOwners, memory(),
             [&](const Relayed& relay) {  // summed
               return cost_.row_seconds(relay.taken + relay.merged, value);
             });
    if (exact_replicas()) {
      collectives_.gather_rows(stages::kReturn, call.lane, ids, bytes, memory());
    }
    local(stages::kReturn, call.lane, [&](int rank) {  // packed, and summed by the owner
      double rows = rows_of_replicas(counts, rank);
      if (but != nullptr) rows -= rows_of_replicas(*but, rank);
      return cost_.row_seconds(
          asked_in_all(ids, rank) + requested(ids, rank) + static_cast<std::int64_t>(rows), value);
    });
    if (call.rows_late) collectives_.small_sum(stages::kReturn, call.lane, 1, memory());
  }

  void backward(const StageCall& call) {
    const auto layers = static_cast<double>(setup_.work.model.layers);
    compute(call, stages::kCompute, [&](const SectionSeconds& s) { return s.backward() / layers; });
    if (setup_.schedule != train::StepSchedule::kSerial) reduce_dense(1 / layers);
  }

  // Sums of a share of the dense gradients, on their way behind what is computed.
  void reduce_dense(double share) {
    if (ranks() == 1) return;
    const double begin = std::max(dense_done_, clock_.latest(Lane::kThis));
    const double bytes = 4 * share * static_cast<double>(setup_.work.parameters);
    const model::ModelOptions& model = setup_.work.model;
    const double most = share * static_cast<double>(model.layers) * most_buckets(model);
    const double buckets = std::clamp(bytes / static_cast<double>(setup_.bucket_bytes), 1.0, most);
    // Hosts by themselves have all buckets under way at once; staged ones go one by one.
    const int calls = setup_.devices ? static_cast<int>(buckets) : 1;
    dense_done_ = by_devices() ? network_.all_reduce(bytes, calls, begin)
                               : network_.all_reduce_hosts(bytes, calls, begin);
  }

  void dense_sums(const StageCall& call) {
    if (ranks() == 1) return;
    if (setup_.schedule == train::StepSchedule::kSerial) reduce_dense(1);
    collectives_.wait_until(stages::kDenseSums, call.lane, dense_done_);
    collectives_.small_sum(stages::kDenseSums, call.lane, 2, memory());
  }

  void update_rows(const StageCall& call) {
    const StepRoutes& route = routes(call);
    if (ranks() == 1) {
      // Rows of the host come and go beside a step's computing (embedding/host_rows.h).
      const double link =
          host_link_seconds(std::ssize(steps_[static_cast<std::size_t>(call.step)].ids_of(0)),
                            setup_.host_row_bytes + setup_.host_update_bytes);
      host_link_seconds_[0] += link;
      return compute(call, stages::kRowUpdate, [&](const SectionSeconds& s) {
        const double waited = std::max(0.0, link - s.forward() - s.backward());
        device_seconds_[0] -= waited;
        return s.row_update + waited;
      });
    }
    const RouteCounts& counts = call.part == Part::kNextReads ? route.next_reads : route.all;
    local(stages::kRowUpdate, call.lane, [&](int rank) {
      const auto place =
          static_cast<std::size_t>(setup_.topology.place_of[static_cast<std::size_t>(rank)]);
      std::int64_t rows = counts.touched[place];
      if (call.part == Part::kRest) rows -= route.next_reads.touched[place];
      return over_host_link(rank, rows, setup_.host_update_bytes) +
             cost_.row_seconds(rows, kRowUpdateBytes);
    });
  }

  // Owners tell who asked which rows come again, and whose gradients are in a hurry.
  void plan_refresh(const StageCall& call) {
    const RouteCounts& changed = routes(call).changed;
    const RouteCounts& hurried = routes_[static_cast<std::size_t>(call.step) - 1].next_reads;
    for (const RouteCounts* counts : {&changed, &hurried}) {
      collectives_.exchange_counts(stages::kPlan, call.lane);
      exchange(stages::kPlan, call.lane, {*counts}, 4, Way::kFromOwners, Memory::kHost,
               [](const Relayed&) { return 0.0; });
    }
    const Ids all = {routes(call).all};
    local(stages::kPlan, call.lane, [&](int rank) {  // looked for among requests, by relays, too
      const std::int64_t relayed =
          collectives_.two_hops() ? collectives_.relayed(all, rank).taken : 0;
      return host_seconds(static_cast<double>(2 * (requested(all, rank) + relayed)));
    });
  }

  void end_step() {
    ++steps_done_;
    const double now = clock_.latest(Lane::kThis);
    if (counting_) {
      ++counted_;
      end_seconds_ = now;
      return;
    }
    // What a step leaves for later comes into play in the second one.
    const bool warm = setup_.schedule == train::StepSchedule::kSerial || std::ssize(steps_) < 4 ||
                      steps_done_ >= 2;
    if (!warm) return;
    counting_ = true;
    begin_seconds_ = now;
    first_counted_ = steps_done_;
    ports_before_ = network_.ports();
    nics_before_ = network_.nics();
    device_before_ = device_seconds_;
    host_before_ = host_seconds_;
    host_link_before_ = host_link_seconds_;
    clock_.start_counting();
  }

  // What has come on top since the counting began, a step.
  std::vector<LinkUse> a_step(std::vector<LinkUse> uses, const std::vector<LinkUse>& before) const {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      for (double LinkUse::*const part :
           {&LinkUse::out_bytes, &LinkUse::in_bytes, &LinkUse::out_seconds, &LinkUse::in_seconds}) {
        uses[i].*part = (uses[i].*part - before[i].*part) / counted_;
      }
    }
    return uses;
  }
  std::vector<double> a_step(std::vector<double> seconds, const std::vector<double>& before) const {
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      seconds[i] = (seconds[i] - before[i]) / counted_;
    }
    return seconds;
  }

  Simulation result() {
    Simulation simulation;
    TGR_CHECK(counted_ > 0, "no step was left to be timed; simulate at least three");
    const auto count = static_cast<double>(counted_);
    simulation.step_seconds = (end_seconds_ - begin_seconds_) / count;
    simulation.stages = clock_.stages(counted_);
    simulation.ports = a_step(network_.ports(), ports_before_);
    simulation.machines = network_.num_nodes();
    simulation.nics = a_step(network_.nics(), nics_before_);
    simulation.device_seconds = a_step(device_seconds_, device_before_);
    simulation.host_seconds = a_step(host_seconds_, host_before_);
    simulation.host_link_seconds = a_step(host_link_seconds_, host_link_before_);
    for (int step = first_counted_; step < first_counted_ + counted_; ++step) {
      const auto s = static_cast<std::size_t>(step);
      double busiest = 0, all = 0;
      for (int rank = 0; rank < ranks(); ++rank) {
        const double seconds =
            slowness(step, rank) * sections_[s][static_cast<std::size_t>(rank)].total();
        all += seconds;
        busiest = std::max(busiest, seconds);
      }
      simulation.compute_seconds += all / ranks() / count;
      simulation.busiest_seconds += busiest / count;
      simulation.tokens +=
          static_cast<double>(std::accumulate(steps_[s].lengths.begin(), steps_[s].lengths.end(),
                                              std::int64_t{0})) /
          count;
      std::vector<std::int64_t> lengths = steps_[s].lengths;
      for (std::int64_t& length : lengths) length += setup_.work.prefix;
      simulation.causal_flops += model::step_flops(setup_.work.model, lengths).causal / count;
    }
    simulation.trace = clock_.take_trace();
    return simulation;
  }

  const SimulationSetup& setup_;
  std::span<const StepBatch> steps_;
  std::span<const StepRoutes> routes_;
  ComputeCost cost_;
  ClusterCollectives collectives_;
  ClusterClock& clock_;
  Network& network_;
  std::vector<std::vector<SectionSeconds>> sections_;  // of each step and rank
  std::vector<double> taken_;  // [ranks], from what computes by what runs beside it
  double dense_done_ = 0;
  int steps_done_ = 0;
  bool counting_ = false;
  int first_counted_ = 0, counted_ = 0;
  double begin_seconds_ = 0, end_seconds_ = 0;
  std::vector<double> device_seconds_, host_seconds_, host_link_seconds_;  // [ranks], busy so far
  std::vector<double> device_before_, host_before_, host_link_before_;
  std::vector<LinkUse> ports_before_, nics_before_;
};

}  // namespace

Simulation simulate(const SimulationSetup& setup, std::span<const StepBatch> steps,
                    std::span<const StepRoutes> routes) {
  TGR_CHECK(steps.size() >= 3 && steps.size() == routes.size(), "a simulation of ", steps.size(),
            " steps with ", routes.size(), " routes; wanted three or more, one route each");
  TGR_CHECK(setup.replicas == embedding::ReplicaMode::kExact,
            "a simulation of dist.replicas = \"average\": only \"exact\" can be planned so far");
  TGR_CHECK(routes[0].all.merged.empty() == (setup.machine_ranks == 0), "a simulation with ",
            setup.machine_ranks,
            " ranks a machine in two hops and routes counted for another; give "
            "LayoutOptions the setup's machine_ranks");
  for (const StepBatch& step : steps) {
    TGR_CHECK(step.ranks() == static_cast<int>(setup.nodes.size()), "a step of ", step.ranks(),
              " ranks in a cluster of ", setup.nodes.size());
  }
  return SimulatedCluster(setup, steps, routes).run();
}

}  // namespace turbogr::plan
