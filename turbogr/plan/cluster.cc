#include "turbogr/plan/cluster.h"

#include "turbogr/core/check.h"
#include "turbogr/core/dtype.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/run/config_negatives.h"
#include "turbogr/run/run_options.h"

namespace turbogr::plan {
namespace {

constexpr std::int64_t kTimeBuckets = 129;

// A group inside a machine needs no second hop.
int machine_ranks_of(const dist::Topology& topology, const ClusterOptions& cluster) {
  const int machine = cluster.ranks_of_node();
  if (machine % topology.group_size == 0) return 0;
  TGR_CHECK(topology.group_size % machine == 0, "exchanges in two hops in groups of ",
            topology.group_size, " ranks on machines of ", machine,
            "; set dist.group to whole machines, a multiple of ", machine);
  return machine;
}

}  // namespace

std::int64_t dense_parameters(const model::ModelOptions& m) {
  std::int64_t layer = m.width * m.projection_width() + m.mixed_width() * m.width;
  if (m.output_bias) layer += m.width;
  if (m.position_bias()) layer += 2 * m.max_length - 1;
  if (m.time_bias()) layer += kTimeBuckets;
  if (m.kind == model::ModelKind::kFuxi) layer += 3 * m.width * m.feed_forward;
  return m.layers * layer + m.max_length * m.width;
}

void check_plannable(const run::Config& config, const ClusterOptions& cluster) {
  TGR_CHECK(!config.ranks(),
            "task = \"ranking\": only the retrieval task can be planned so far; docs/planning.md "
            "says what is missing");
  const auto is_count = [](int count) { return count >= 1 && count <= kMostRanks; };
  TGR_CHECK(is_count(cluster.nodes) && is_count(cluster.gpus) && is_count(cluster.sharing) &&
                std::int64_t{cluster.nodes} * cluster.gpus * cluster.sharing <= kMostRanks,
            "--nodes ", cluster.nodes, " with --gpus ", cluster.gpus, " and --sharing ",
            cluster.sharing, ": plans go from 1 to ", kMostRanks,
            " ranks, which is their product; change one of them");
  gpu_description(cluster.gpu);
  network_description(cluster.network);
}

SimulationSetup setup_of(const run::Config& config, const ClusterOptions& cluster,
                         const PlannedFeatures* features) {
  check_plannable(config, cluster);
  TGR_CHECK(config.features.empty() || features != nullptr, "a config with ",
            config.features.size(),
            " features is planned without them; give setup_of their tables");
  SimulationSetup setup;
  setup.gpu = gpu_description(cluster.gpu);
  setup.network = network_description(cluster.network);
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    setup.nodes.push_back(rank / cluster.ranks_of_node());
  }
  setup.sharing = cluster.sharing;
  setup.staged = cluster.sharing > 1;
  const train::NegativeOptions negatives = run::negative_options(config.negatives);
  setup.work.model = run::model_options(config, /*num_signals=*/0);
  if (features != nullptr) {
    setup.work.prefix = features->options().num_prefix();
    setup.work.model.max_length += setup.work.prefix;
  }
  setup.work.parameters = dense_parameters(setup.work.model);
  setup.work.negatives = negatives.count;
  setup.work.shared_negatives = negatives.shared;
  setup.work.recompute = config.train.recompute;
  const train::RankOptions ranks = run::rank_options(config, setup.nodes);
  setup.topology = ranks.topology;
  TGR_CHECK(!(cluster.two_hops && config.dist.spread),
            "exchanges in two hops are of groups that have whole machines, and dist.spread = true "
            "spreads them; use one of the two");
  if (cluster.two_hops) setup.machine_ranks = machine_ranks_of(ranks.topology, cluster);
  setup.schedule = ranks.schedule;
  setup.replicas = ranks.replicas;
  setup.row_wire = ranks.row_wire;
  setup.gradient_wire = ranks.gradient_wire;
  setup.bucket_bytes = ranks.bucket_bytes;
  setup.clips = config.optim.clip > 0;
  setup.devices = config.train.device == "cuda";
  if (setup.devices && config.embedding.memory == "host") {
    const embedding::TableOptions row = {
        .rows = ranks.topology.group_size,
        .width = config.model.width,
        .optimiser = embedding::sparse_optimiser_from_name(config.embedding.optimiser),
        .dtype = dtype_from_name(config.embedding.dtype)};
    setup.host_row_bytes =
        static_cast<double>(config.model.width) * static_cast<double>(size_of(row.dtype));
    // Read and written, its optimiser's state, too.
    setup.host_update_bytes = 2 * static_cast<double>(embedding::shard_bytes(row, ranks.layout()));
  }
  return setup;
}

}  // namespace turbogr::plan
