#include "turbogr/plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace turbogr::plan {
namespace {

constexpr std::int64_t kLargeBucket = 32 << 20;

void speed_up(SimulationSetup& setup, std::initializer_list<Figure GpuDescription::*> rates,
              std::initializer_list<Figure GpuDescription::*> times) {
  for (const auto rate : rates) (setup.gpu.*rate).value *= 2;
  for (const auto time : times) (setup.gpu.*time).value /= 2;
}

void double_computing(SimulationSetup& setup) {
  using Gpu = GpuDescription;
  speed_up(setup,
           {&Gpu::product_tflops, &Gpu::loss_tflops, &Gpu::loss_gather_tbs, &Gpu::stream_tbs,
            &Gpu::row_tbs, &Gpu::hstu_forward_tflops, &Gpu::hstu_backward_tflops,
            &Gpu::fuxi_forward_tflops, &Gpu::fuxi_backward_tflops, &Gpu::update_gparameters},
           {&Gpu::hstu_forward_token_ns, &Gpu::hstu_backward_token_ns, &Gpu::fuxi_forward_token_ns,
            &Gpu::fuxi_backward_token_ns, &Gpu::step_gap_ms});
}

// Figures of another source are never mixed in without saying so.
std::string with_sources(const std::string& option, const std::vector<NamedFigure>& figures) {
  return option + " (figures: " + count_sources(figures).text() + ")";
}

struct NamedChange {
  std::string text, results;
  PlanSearch::Change change;
  bool hardware = false;
};

std::vector<NamedChange> hardware_changes(const PlanSearch& search, bool on_hosts) {
  const ClusterOptions& cluster = search.cluster();
  std::vector<NamedChange> changes;
  const auto add = [&](std::string text, std::function<void(SimulationSetup&)> change) {
    changes.push_back({std::move(text), "same", {{}, std::move(change)}, true});
  };
  add("devices that compute twice as fast", double_computing);
  add("hosts that look at ids twice as fast",
      [](SimulationSetup& setup) { setup.gpu.host_ids_ns.value /= 2; });
  if (on_hosts) {
    add("links to hosts twice as fast",
        [](SimulationSetup& setup) { setup.gpu.host_link_gbs.value *= 2; });
  }
  if (cluster.ranks() > 1) {
    add("ports twice as fast", [](SimulationSetup& setup) {
      setup.gpu.local_gbs.value *= 2;
      setup.network.host_gbs.value *= 2;
    });
    add("latencies half as long", [](SimulationSetup& setup) {
      setup.gpu.local_us.value /= 2;
      for (Figure* const each :
           {&setup.network.net_us, &setup.network.host_us, &setup.network.message_us}) {
        each->value /= 2;
      }
    });
  }
  if (cluster.nodes > 1) {
    add("NICs twice as fast", [](SimulationSetup& setup) { setup.network.nic_gbs.value *= 2; });
    for (const std::string& name : network_names()) {
      if (name == cluster.network) continue;
      const NetworkDescription network = network_description(name);
      add(with_sources("--network " + name, figures_of(network)),
          [network](SimulationSetup& setup) { setup.network = network; });
    }
  }
  const std::string device = gpu_description(cluster.gpu).device;
  for (const std::string& name : gpu_names()) {
    const GpuDescription gpu = gpu_description(name);
    if (name == cluster.gpu || gpu.device != device) continue;
    add(with_sources("--gpu " + name, figures_of(gpu)),
        [gpu](SimulationSetup& setup) { setup.gpu = gpu; });
  }
  return changes;
}

std::vector<NamedChange> key_changes(const PlanSearch& search, Semantics semantics) {
  const run::Config& config = search.config();
  const std::string results(text_of(semantics));
  std::vector<NamedChange> changes;
  if (search.cluster().ranks() > 1 && config.dist.bucket < kLargeBucket) {
    changes.push_back({fmt::format("dist.bucket = {}", kLargeBucket),
                       results,
                       {[](run::Config& other) { other.dist.bucket = kLargeBucket; }, {}}});
  }
  if (config.optim.clip > 0) {
    changes.push_back({"optim.clip = 0, so that row gradients need not wait for the norm",
                       "not clipped",
                       {[](run::Config& other) { other.optim.clip = 0; }, {}}});
  }
  return changes;
}

}  // namespace

std::vector<WhatIf> what_would_help(PlanSearch& search, const Choice& best) {
  std::vector<WhatIf> found;
  const auto add = [&](const std::string& text, const std::string& results, bool hardware,
                       const Choice& choice) {
    if (!choice.fits) return;
    const double gain = best.token_seconds() / choice.token_seconds() - 1;
    found.push_back({text, results, hardware, choice.simulation, gain});
  };
  std::vector<NamedChange> changes = hardware_changes(search, best.memory.host_table > 0);
  for (NamedChange& each : key_changes(search, best.semantics)) changes.push_back(std::move(each));
  for (const NamedChange& each : changes) {
    add(each.text, each.results, each.hardware, search.try_changed(best.settings, each.change));
  }
  for (const Settings& settings : search.neighbours(best.settings)) {
    const Choice choice = search.try_settings(settings);
    add(settings.text(), std::string(text_of(choice.semantics)), false, choice);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.gain > b.gain; });
  return found;
}

}  // namespace turbogr::plan
