#include "turbogr/plan/describe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "turbogr/core/check.h"

namespace turbogr::plan {
namespace {

constexpr double kLeastGap = 1e-6;
constexpr double kLeastIdSeconds = 1e-10;
constexpr double kLeastTokenSeconds = 1e-12;
constexpr double kLeastPairSeconds = 1e-18;

// Amount over time, of all steps that have some of it.
class Rate {
 public:
  void add(double amount, double seconds) {
    if (amount <= 0 || seconds <= 0) return;
    amount_ += amount;
    seconds_ += seconds;
  }
  void write(Figure& figure, double unit, const std::string& source) const {
    if (seconds_ > 0) figure = {amount_ / seconds_ / unit, source};
  }

 private:
  double amount_ = 0, seconds_ = 0;
};

// seconds = pairs / rate + tokens * each, through two steps.
void fit_attention(const SectionCounts& a, double seconds_a, const SectionCounts& b,
                   double seconds_b, double passes, Figure& tflops, Figure& token_ns,
                   const std::string& source) {
  const double pairs_a = passes * a.pair_flops, pairs_b = passes * b.pair_flops;
  const double determinant = pairs_a * b.token_layers - pairs_b * a.token_layers;
  TGR_CHECK(std::abs(determinant) > 1e-3 * pairs_a * b.token_layers,
            "two measured steps have sequences alike, which cannot tell pairs from tokens; measure "
            "one with longer sequences");
  double a_pair = (seconds_a * b.token_layers - seconds_b * a.token_layers) / determinant;
  double a_token = (pairs_a * seconds_b - pairs_b * seconds_a) / determinant;
  // Where noise has made one of them nothing, all of the time is the other's.
  if (a_token < kLeastTokenSeconds) {
    a_token = kLeastTokenSeconds;
    a_pair = (seconds_a + seconds_b) / (pairs_a + pairs_b);
  } else if (a_pair < kLeastPairSeconds) {
    a_pair = kLeastPairSeconds;
    a_token = (seconds_a + seconds_b) / (a.token_layers + b.token_layers);
  }
  tflops = {1 / a_pair / 1e12, source};
  token_ns = {a_token * 1e9, source};
}

// Work that is in no section: what a step has whatever its size, and what goes with its ids.
struct RestFit {
  double gap = 0, an_id = 0;
};

RestFit fit_rest(const std::vector<MeasuredStep>& steps, const std::vector<double>& rests) {
  double ids = 0, rest = 0, squares = 0, products = 0;
  const auto count = static_cast<double>(steps.size());
  std::vector<double> marked;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    marked.push_back(ids_marked(steps[i].work, steps[i].lengths));
    ids += marked[i] / count;
    rest += rests[i] / count;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    squares += (marked[i] - ids) * (marked[i] - ids);
    products += (marked[i] - ids) * (rests[i] - rest);
  }
  const double slope = squares > 0 ? std::max(0.0, products / squares) : 0;
  const double an_id = std::min(slope, rest / ids);
  return {std::max(kLeastGap, rest - an_id * ids), std::max(kLeastIdSeconds, an_id)};
}

}  // namespace

GpuDescription describe(GpuDescription base, const std::vector<MeasuredStep>& steps,
                        const std::string& source) {
  Rate products, elementwise, loss, gathered, updates, rows;
  double gap = 0;
  std::vector<double> rests;
  for (const MeasuredStep& step : steps) {
    const SectionCounts counts = counts_of(step.work, step.lengths);
    products.add(counts.product_flops, step.sections.products);
    elementwise.add(counts.elementwise_bytes, step.sections.elementwise);
    loss.add(counts.loss_flops, step.sections.loss);
    gathered.add(counts.loss_bytes, step.sections.loss);
    updates.add(static_cast<double>(step.work.parameters), step.sections.optimiser);
    if (step.rows > 0) {
      const double updated =
          static_cast<double>(step.rows * step.work.model.width) * kRowUpdateBytes;
      rows.add(embedding_bytes(step.work, step.lengths, step.rows) + updated,
               step.sections.embedding);
    }
    rests.push_back(std::max(kLeastGap, step.seconds - step.sections.total()));
    gap += rests.back() / static_cast<double>(steps.size());
  }
  products.write(base.product_tflops, 1e12, source);
  elementwise.write(base.stream_tbs, 1e12, source);
  loss.write(base.loss_tflops, 1e12, source);
  gathered.write(base.loss_gather_tbs, 1e12, source);
  updates.write(base.update_gparameters, 1e9, source);
  rows.write(base.row_tbs, 1e12, source);
  if (!steps.empty() && base.device == "cpu") {
    const RestFit fit = fit_rest(steps, rests);
    base.step_gap_ms = {1e3 * fit.gap, source};
    base.host_ids_ns = {1e9 * fit.an_id, source};
  } else if (!steps.empty()) {
    base.step_gap_ms = {1e3 * gap, source};
  }

  for (const auto kind : {model::ModelKind::kHstu, model::ModelKind::kFuxi}) {
    std::vector<const MeasuredStep*> biased;
    for (const MeasuredStep& step : steps) {
      if (step.work.model.kind == kind && step.work.model.bias == model::BiasKind::kBoth) {
        biased.push_back(&step);
      }
    }
    if (biased.size() < 2) continue;
    const MeasuredStep &one = *biased[0], &other = *biased[1];
    const SectionCounts a = counts_of(one.work, one.lengths);
    const SectionCounts b = counts_of(other.work, other.lengths);
    const bool fuxi = kind == model::ModelKind::kFuxi;
    fit_attention(a, one.sections.attention_forward, b, other.sections.attention_forward, 1,
                  fuxi ? base.fuxi_forward_tflops : base.hstu_forward_tflops,
                  fuxi ? base.fuxi_forward_token_ns : base.hstu_forward_token_ns, source);
    fit_attention(a, one.sections.attention_backward, b, other.sections.attention_backward, 2,
                  fuxi ? base.fuxi_backward_tflops : base.hstu_backward_tflops,
                  fuxi ? base.fuxi_backward_token_ns : base.hstu_backward_token_ns, source);
    for (const MeasuredStep& step : steps) {
      if (step.work.model.kind != kind || step.work.model.bias != model::BiasKind::kNone) continue;
      StepWork with_bias = step.work;
      with_bias.model.bias = model::BiasKind::kBoth;
      const SectionSeconds biased_step =
          ComputeCost(base, with_bias).of({.lengths = step.lengths, .rows = 0});
      base.no_bias_forward = {step.sections.attention_forward / biased_step.attention_forward,
                              source};
      base.no_bias_backward = {step.sections.attention_backward / biased_step.attention_backward,
                               source};
    }
  }
  return base;
}

LinkFit fit_link(std::span<const CollectiveTime> times) {
  TGR_CHECK(times.size() >= 2 && times[times.size() - 2].bytes < times.back().bytes,
            "a link was measured with ", times.size(),
            " sizes, which tell no latency from no rate; give at least two, ascending");
  const CollectiveTime &large = times[times.size() - 2], &largest = times.back();
  const double slope =
      (largest.seconds - large.seconds) / static_cast<double>(largest.bytes - large.bytes);
  TGR_CHECK(slope > 0,
            "larger messages took no longer than small ones; measure again on a quiet "
            "machine");
  return {1e6 * times.front().seconds, 1e-9 / slope};
}

namespace {

using Times = std::vector<CollectiveTime>;

Times times_of(const Times& all, const std::string& collective, bool several_machines) {
  Times found;
  for (const CollectiveTime& time : all) {
    if (time.collective == collective && (time.nodes > 1) == several_machines)
      found.push_back(time);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return found;
}

// What is left of a sum inside a machine when its two rounds of messages are taken off.
std::optional<Figure> sum_rate(const Times& sums, const LinkFit& inside,
                               const std::string& source) {
  if (sums.empty()) return std::nullopt;
  const CollectiveTime& largest = sums.back();
  const auto bytes = static_cast<double>(largest.bytes);
  const double rounds = 2 * (bytes / largest.ranks / (inside.gbs * 1e9) + inside.alpha_us * 1e-6);
  constexpr double kMost = 1000;  // GB/s: nothing is left
  const double left = std::max(largest.seconds - rounds, bytes / (kMost * 1e9));
  return Figure{bytes / left * 1e-9, source};
}

}  // namespace

std::optional<NetworkDescription> describe_network(const Times& times, const std::string& source,
                                                   const NetworkDescription& base,
                                                   GpuDescription& gpu) {
  const Times inside = times_of(times, "exchange", false);
  const Times between = times_of(times, "exchange", true);
  if (inside.empty() && between.empty()) return std::nullopt;
  // Messages went between hosts' memories. What they tell of links between devices holds where the
  // hosts are the devices; a GPU's links go by ways of their own.
  const bool hosts_alone = gpu.device == "cpu";
  NetworkDescription network = base;
  if (!inside.empty()) {
    const LinkFit fit = fit_link(inside);
    if (hosts_alone) {
      gpu.local_us = {fit.alpha_us, source};
      gpu.local_gbs = {fit.gbs, source};
    }
    network.host_gbs = {fit.gbs, source};
    const auto sum = sum_rate(times_of(times, "all_reduce", false), fit, source);
    if (sum) network.host_sum_gbs = *sum;
  }
  if (between.empty()) return network;
  const LinkFit fit = fit_link(between);
  network.host_us = {fit.alpha_us, source};
  if (!hosts_alone) return network;
  network.nics = {1, "derived: what the ranks of a machine share is taken as one link"};
  network.nic_gbs = {fit.gbs, source};
  network.net_us = {fit.alpha_us, source};
  network.fabric = {1, "derived: no more than what two machines exchange was measured"};
  const Times all = times_of(times, "all_to_all", true);
  if (!all.empty() && all.front().ranks > 2) {
    constexpr double kLeastMessageUs = 0.1;
    const double more = all.front().seconds - between.front().seconds;
    network.message_us = {std::max(kLeastMessageUs, 1e6 * more / (all.front().ranks - 2)), source};
  }
  return network;
}

namespace {

template <class Machine>
nlohmann::ordered_json figures_json(const char* what, const Machine& machine) {
  nlohmann::ordered_json json = {{"what", what}};
  for (const NamedFigure& each : figures_of(machine)) {
    json[std::string(each.key)] = {{"value", each.figure->value}, {"source", each.figure->source}};
  }
  return json;
}

}  // namespace

std::string json_of(const MeasuredMachine& machine) {
  nlohmann::ordered_json json = {{"what", "machine"}};
  json["gpu"] = figures_json("gpu", machine.gpu);
  json["gpu"]["device"] = machine.gpu.device;
  if (machine.network) json["network"] = figures_json("network", *machine.network);
  std::map<std::tuple<std::string, int, int>, std::vector<CollectiveTime>> of_collective;
  for (const CollectiveTime& time : machine.collectives) {
    of_collective[{time.collective, time.nodes, time.ranks}].push_back(time);
  }
  for (const auto& [key, times] : of_collective) {
    const LinkFit fit = fit_link(times);
    nlohmann::ordered_json row = {{"collective", std::get<0>(key)},
                                  {"machines", std::get<1>(key)},
                                  {"ranks", std::get<2>(key)},
                                  {"alpha_us", fit.alpha_us},
                                  {"gbs", fit.gbs}};
    for (const CollectiveTime& time : times) {
      row["times"].push_back({{"bytes", time.bytes}, {"us", 1e6 * time.seconds}});
    }
    json["collectives"].push_back(row);
  }
  return json.dump(2) + "\n";
}

}  // namespace turbogr::plan
