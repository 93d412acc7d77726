#include "bench/step_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <unordered_set>
#include <utility>

#include "bench/energy.h"
#include "bench/timing.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/synth_presets.h"
#include "turbogr/model/flops.h"
#include "turbogr/run/peak_rate.h"
#include "turbogr/run/run_options.h"
#include "turbogr/train/retrieval_trainer.h"

namespace turbogr::bench {
namespace {

using data::Batch;
using train::RetrievalTrainer;

constexpr int kBatches = 4;
constexpr int kWarmUp = 4;
constexpr std::int64_t kProfiled = 3;  // on a GPU; a CPU's steps differ more

// Items are drawn as KuaiRand's users choose them, popular ones first: u, a share of all events,
// falls on the item at that share of the catalogue. Gaps in time are zero (events of one page) or
// anything from a second to two days.
std::int64_t draw_item(double u, std::int64_t items) {
  const std::span<const data::CurvePoint> curve = data::synth_preset("kuairand27k").popularity;
  const auto end = std::ranges::lower_bound(curve, u, {}, &data::CurvePoint::y);
  if (end == curve.begin()) return 0;
  const data::CurvePoint low = end[-1], high = *end;
  const double share = low.x + (high.x - low.x) * (u - low.y) / (high.y - low.y);
  return std::min(items - 1, static_cast<std::int64_t>(static_cast<double>(items) * share));
}
// Falls as popularity does, which is all that the cache of a table in host memory asks.
std::vector<std::int64_t> popularity_of(std::int64_t items) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(items));
  std::iota(counts.rbegin(), counts.rend(), std::int64_t{1});
  return counts;
}

Batch make_batch(const std::vector<std::int64_t>& lengths, std::int64_t items, std::uint64_t seed,
                 std::uint64_t first_key) {
  PhiloxStream random(seed);
  Batch batch;
  batch.offsets = {0};
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    std::int64_t time = 1'700'000'000;
    std::int64_t next = 0;
    for (std::int64_t i = 0; i <= lengths[b]; ++i) {
      const std::int64_t item = draw_item(random.uniform(), items);
      const bool together = random.uniform() < 0.4;
      const auto gap = static_cast<std::int64_t>(std::exp(random.uniform() * std::log(172'800.0)));
      if (i > 0) {
        time += together ? 0 : gap;
        batch.items.push_back(next);
        batch.targets.push_back(item);
        batch.query_times.push_back(time);
        batch.row_keys.push_back(((first_key + b) << 20) | static_cast<std::uint64_t>(i - 1));
      }
      if (i < lengths[b]) batch.key_times.push_back(time);
      next = item;
    }
    batch.offsets.push_back(batch.offsets.back() + lengths[b]);
    batch.users.push_back(static_cast<std::int64_t>(b));
    batch.windows.push_back(static_cast<std::int64_t>(b));
  }
  return batch;
}

train::RetrievalOptions options_of(const run::Config& config, std::int64_t tokens) {
  return run::retrieval_options(config, /*num_signals=*/0, /*total_steps=*/10'000, tokens);
}

// The second loss has seen one update, so backward and the optimisers count too.
template <class T>
double small_loss(run::Config config, Device device, const Batch& batch, std::int64_t items) {
  config.model.dropout = 0;
  config.model.layers = std::min<std::int64_t>(config.model.layers, 2);  // the CPU takes its time
  config.negatives.count = std::min<std::int64_t>(config.negatives.count, 256);
  Context ctx({.device = device, .threads = static_cast<int>(config.train.threads)});
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(items), 1);
  RetrievalTrainer<T> trainer(ctx, options_of(config, batch.num_tokens()), items, counts);
  trainer.initialise(ctx);
  trainer.step(ctx, {&batch, 1});
  return trainer.step(ctx, {&batch, 1}).loss;
}

template <class T>
void check_small(const StepProblem& problem, StepFigures& figures) {
  constexpr std::int64_t kItems = 2000;
  const std::int64_t longest = std::min<std::int64_t>(160, problem.config.data.max_length);
  const Batch batch = make_batch({longest, 1, longest / 2}, kItems, problem.seed + 99, 0);
  figures.small_loss = small_loss<T>(problem.config, Device::kCuda, batch, kItems);
  figures.small_loss_cpu = small_loss<float>(problem.config, Device::kCpu, batch, kItems);
  TGR_CHECK(std::abs(figures.small_loss - figures.small_loss_cpu) <=
                0.01 * std::abs(figures.small_loss_cpu),
            "bench step: the GPU's second loss on a small batch is ", figures.small_loss,
            " and the CPU's ", figures.small_loss_cpu,
            "; a timing of wrong answers is worth nothing");
}

template <class T>
StepFigures measure(const StepProblem& problem) {
  const run::Config& config = problem.config;
  StepFigures figures;
  for (const std::int64_t length : problem.lengths) figures.tokens += length;
  const Device device = run::device_of(config);
  if (device == Device::kCuda) check_small<T>(problem, figures);

  Context ctx({.device = device,
               .threads = static_cast<int>(config.train.threads),
               .trace = problem.trace});
  const std::vector<std::int64_t> counts = popularity_of(problem.items);
  RetrievalTrainer<T> trainer(ctx, options_of(config, figures.tokens), problem.items, counts);
  trainer.initialise(ctx);
  std::vector<Batch> batches;
  for (std::uint64_t b = 0; b < kBatches; ++b) {
    batches.push_back(
        make_batch(problem.lengths, problem.items, problem.seed + b, b * problem.lengths.size()));
  }
  for (const Batch& batch : batches) {
    std::unordered_set<std::int64_t> distinct(batch.items.begin(), batch.items.end());
    distinct.insert(batch.targets.begin(), batch.targets.end());
    figures.batch_items += std::ssize(distinct) / kBatches;
  }
  const auto batch_of = [&](std::int64_t step) {
    return std::span<const Batch>(&batches[static_cast<std::size_t>(step % kBatches)], 1);
  };
  for (int step = 0; step < kWarmUp; ++step) trainer.step(ctx, batch_of(step));

  const auto sent_before = trainer.link_bytes();
  const EnergyMeter meter;
  const double joules_before = device == Device::kCuda ? meter.joules() : -1;
  std::vector<std::unique_ptr<Event>> ends;
  std::vector<double> host_ends;
  for (std::int64_t step = 0; step <= problem.steps; ++step) {
    trainer.submit(ctx, batch_of(step));
    ends.push_back(std::make_unique<Event>(ctx, /*timed=*/true));
    ends.back()->record(ctx);
    if (trainer.pending() == trainer.queue_length()) figures.loss = trainer.finish(ctx).loss;
    host_ends.push_back(static_cast<double>(Trace::now_ns()) * 1e-6);
  }
  while (trainer.pending() > 0) figures.loss = trainer.finish(ctx).loss;
  synchronize(ctx);
  const double joules_after = joules_before >= 0 ? meter.joules() : -1;
  std::vector<double> samples;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    samples.push_back(device == Device::kCuda ? ends[i]->ms_since(*ends[i - 1])
                                              : host_ends[i] - host_ends[i - 1]);
  }
  figures.ms = summary_of(samples).ms;
  const auto sent = trainer.link_bytes();
  const auto steps = static_cast<double>(problem.steps + 1);
  if (joules_before >= 0) {
    figures.joules_per_token =
        (joules_after - joules_before) / (steps * static_cast<double>(figures.tokens));
  }
  figures.link_bytes_to_device = (sent.to_device - sent_before.to_device) / steps;
  figures.link_bytes_to_host = (sent.to_host - sent_before.to_host) / steps;

  SectionTimer timer;
  ctx.set_sections(&timer);
  const std::int64_t profiled = device == Device::kCuda ? kProfiled : problem.steps;
  std::array<std::vector<double>, kSections> section_samples;
  std::array<double, kSections> before = {};
  for (std::int64_t step = 0; step < profiled; ++step) {
    trainer.step(ctx, batch_of(step));
    timer.finish(ctx);
    for (std::size_t s = 0; s < kSections; ++s) {
      const double now = timer.ms(static_cast<Section>(s));
      section_samples[s].push_back(now - std::exchange(before[s], now));
    }
  }
  ctx.set_sections(nullptr);
  for (std::size_t s = 0; s < kSections; ++s) {
    figures.section_ms[s] = summary_of(section_samples[s]).ms;
  }
  if (device == Device::kCuda) {
    const DeviceMemory memory = device_memory();
    figures.memory_bytes = memory.total - memory.free;
    if (config.embedding.memory == "host") figures.link = measure_link(ctx);
  } else {
    figures.memory_bytes = trainer.planned_bytes(ctx).host;
  }
  const model::Flops flops = model::step_flops(trainer.model().options(), problem.lengths);
  run::PeakRate peak_rate = run::make_peak_rate<T>(ctx, config.train.peak_tflops);
  peak_rate.reached(flops.causal / figures.ms * 1e-9);
  figures.peak_tflops = peak_rate.tflops();
  const double peak = figures.peak_tflops * 1e12 * figures.ms * 1e-3;
  figures.mfu_causal = flops.causal / peak;
  figures.mfu_paper = flops.paper / peak;
  return figures;
}

}  // namespace

StepFigures measure_step(const StepProblem& problem) {
  return problem.config.train.dtype == "bf16" ? measure<bf16>(problem) : measure<float>(problem);
}

}  // namespace turbogr::bench
