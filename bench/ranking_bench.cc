#include "bench/ranking_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "bench/timing.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/model/buffers.h"
#include "turbogr/model/feature_rows.h"
#include "turbogr/model/ranking_inputs.h"
#include "turbogr/run/peak_rate.h"
#include "turbogr/train/ranking_trainer.h"

namespace turbogr::bench {
namespace {

constexpr std::uint64_t kRankingBatches = 3;
constexpr int kRankingWarmUp = 3;
constexpr int kRankingProfiled = 2;

struct Counts {
  std::int64_t sequences = 0, tokens = 0, targets = 0, longest = 0, most_targets = 0;
};

Counts counts_of(const RankingShape& shape, const RankingLengths& lengths) {
  Counts counts;
  counts.sequences = std::ssize(lengths.history);
  for (std::size_t b = 0; b < lengths.history.size(); ++b) {
    const std::int64_t tokens = shape.model.prefix + lengths.history[b] + lengths.targets[b];
    counts.tokens += tokens;
    counts.targets += lengths.targets[b];
    counts.longest = std::max(counts.longest, tokens);
    counts.most_targets = std::max(counts.most_targets, lengths.targets[b]);
  }
  return counts;
}

// Of about 1 / parts of a batch, whole sequences.
model::RankingMemory memory_of(const RankingProblem& problem, const Counts& counts,
                               bool inference) {
  const std::int64_t parts = std::max<std::int64_t>(problem.parts, 1);
  const bool whole = parts == 1;
  return {.layers = {.capacity = whole ? counts.tokens : counts.tokens / parts + counts.longest,
                     .sequences = counts.sequences,
                     .recompute = problem.recompute,
                     .inference = inference},
          .targets = counts.targets,
          .most_targets = counts.most_targets};
}

train::RankingTrainOptions train_options(const RankingProblem& problem, const Counts& counts) {
  train::RankingTrainOptions options;
  options.model = problem.shape.model;
  options.features = problem.shape.features;
  options.memory = memory_of(problem, counts, /*inference=*/false);
  options.batch = {counts.sequences, counts.tokens, counts.targets};
  options.dense.rate = options.table.rate = 1e-6;
  options.tables = tables_of(problem.shape, problem.table_dtype);
  options.table_memory = problem.device;
  options.seed = problem.seed;
  return options;
}

// A few short sequences of the same model, with small tables.
RankingProblem small_problem(const RankingProblem& problem, Device device) {
  RankingProblem small = problem;
  small.device = device;
  small.parts = 1;
  small.shape.model.dropout = small.shape.model.input_dropout = 0;
  small.shape.model.layers = std::min<std::int64_t>(small.shape.model.layers, 2);
  for (std::int64_t& rows : small.shape.features.table_rows)
    rows = std::min<std::int64_t>(rows, 500);
  const std::int64_t targets =
      *std::max_element(problem.lengths.targets.begin(), problem.lengths.targets.end()) > 1 ? 3 : 1;
  small.lengths = {{37, 0, 64}, {targets, 1, targets}};
  return small;
}

template <class T>
double small_loss(const RankingProblem& problem) {
  const Context ctx({.device = problem.device, .threads = problem.threads});
  const auto alone = dist::make_self();
  train::RankingTrainOptions options =
      train_options(problem, counts_of(problem.shape, problem.lengths));
  options.dense.rate = options.table.rate = 1e-5;
  options.tables = tables_of(problem.shape, DType::kF32);
  train::RankingTrainer<T> step(ctx, *alone, options);
  step.initialise(ctx);
  const MadeUpBatch batch(problem.shape, problem.lengths, problem.seed);
  step.run(ctx, batch.view());
  return step.run(ctx, batch.view()).loss;  // has seen an update, too small to bring it near zero
}

// What a batch of requests goes through: its rows, pooled, and the model.
template <class T>
class RequestRunner {
 public:
  RequestRunner(const Context& ctx, const RankingProblem& problem, const Counts& counts)
      : rows_(tables_of(problem.shape, problem.table_dtype), problem.device),
        feature_rows_(ctx, problem.shape.features, counts.sequences, counts.tokens),
        memory_(memory_of(problem, counts, /*inference=*/true)),
        model_(ctx, problem.shape.model, memory_),
        inputs_(ctx, problem.shape.model, memory_,
                {counts.sequences, counts.tokens, counts.targets}),
        fetched_(feature_rows_.num_tables()) {
    const std::int64_t width = problem.shape.model.embedding;
    std::vector<std::int64_t> most;
    for (std::size_t t = 0; t < feature_rows_.num_tables(); ++t) {
      most.push_back(feature_rows_.most_ids(t));
      touched_.emplace_back(problem.shape.features.table_rows[t], most.back());
    }
    request_ = rows_.make_request(ctx, most);
    table_rows_ = Tensor(dtype_of<T>(), {feature_rows_.most_rows(), width}, ctx.device());
    slots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width}, ctx.device());
    ctx.workspace().reserve(feature_rows_.workspace_bytes(ctx, width));
    rows_.initialise(ctx);
    model_.initialise(ctx, problem.seed);
  }

  // The result stays on the device until the next batch; nothing waits for it.
  Rows<const T> run(const Context& ctx, const model::RankingBatch& batch) {
    feature_rows_.read(ctx, batch);
    const Rows<T> rows = model::first_rows<T>(table_rows_, feature_rows_.num_rows());
    for (std::size_t t = 0; t < touched_.size(); ++t) {
      touched_[t].clear();
      touched_[t].mark(ctx.host(), feature_rows_.ids(t));
      touched_[t].number(ctx.host());
      fetched_[t] = {{rows.row(feature_rows_.first_row(t)), feature_rows_.ids(t).shape[0],
                      rows.cols, rows.cols},
                     {}};
    }
    rows_.prepare(ctx, embedding::Lane::kThis, {.tables = touched_}, *request_);
    rows_.fetch(ctx, embedding::Lane::kThis, *request_, fetched_);
    const Rows<T> slots = model::first_rows<T>(slots_, feature_rows_.num_slots());
    feature_rows_.pool<T>(ctx, rows, slots);
    const auto all = feature_rows_.split<const T>(slots);
    Rows<const T> logits;
    for (const model::RankingPart& part : inputs_.send(ctx, batch)) {
      logits = model_.forward(ctx, part.step, model::rows_of(part, all));
    }
    return logits;
  }

  std::int64_t num_rows() const { return feature_rows_.num_rows(); }
  std::size_t table_bytes() const { return rows_.bytes().gpu + rows_.bytes().host; }

 private:
  embedding::LocalRows<T> rows_;
  model::FeatureRows feature_rows_;
  model::RankingMemory memory_;
  model::RankingModel<T> model_;
  model::RankingInputs inputs_;
  std::vector<embedding::TouchedRows> touched_;
  std::unique_ptr<embedding::RowRequest> request_;
  std::vector<embedding::StepRows<T>> fetched_;
  Tensor table_rows_, slots_;
};

template <class T>
std::vector<float> small_logits(const RankingProblem& problem) {
  const Context ctx({.device = problem.device, .threads = problem.threads});
  RequestRunner<T> runner(ctx, problem, counts_of(problem.shape, problem.lengths));
  const MadeUpBatch batch(problem.shape, problem.lengths, problem.seed);
  const Rows<const T> logits = runner.run(ctx, batch.view());
  Tensor copy(dtype_of<T>(), {logits.rows, logits.cols}, ctx.device());
  copy_bytes(ctx, copy.data(), logits.data, copy.bytes());
  copy = to_host(ctx, copy);
  std::vector<float> values;
  for (std::int64_t i = 0; i < copy.size(); ++i) {
    values.push_back(convert<float>(reinterpret_cast<const T*>(copy.data())[i]));
  }
  return values;
}

std::vector<std::unique_ptr<MadeUpBatch>> make_batches(const RankingProblem& problem) {
  std::vector<std::unique_ptr<MadeUpBatch>> batches;
  for (std::uint64_t b = 0; b < kRankingBatches; ++b) {
    batches.push_back(
        std::make_unique<MadeUpBatch>(problem.shape, problem.lengths, problem.seed + b));
  }
  return batches;
}

// Calls run(i) for steps and fills in how long they took; run returns when its work is queued.
template <class Run>
void time_steps(Context& ctx, const RankingProblem& problem, Run&& run, RankingFigures& figures) {
  for (int i = 0; i < kRankingWarmUp; ++i) run(i);
  std::vector<std::unique_ptr<Event>> ends;
  std::vector<double> host_ends;
  for (std::int64_t i = 0; i <= problem.steps; ++i) {
    run(i);
    ends.push_back(std::make_unique<Event>(ctx, /*timed=*/true));
    ends.back()->record(ctx);
    host_ends.push_back(static_cast<double>(Trace::now_ns()) * 1e-6);
  }
  synchronize(ctx);
  std::vector<double> samples;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    samples.push_back(problem.device == Device::kCuda ? ends[i]->ms_since(*ends[i - 1])
                                                      : host_ends[i] - host_ends[i - 1]);
  }
  figures.ms = summary_of(samples).ms;
  if (problem.device != Device::kCuda) return;
  SectionTimer timer;
  ctx.set_sections(&timer);
  for (int i = 0; i < kRankingProfiled; ++i) {
    run(i);
    timer.finish(ctx);
  }
  ctx.set_sections(nullptr);
  for (std::size_t s = 0; s < kSections; ++s) {
    figures.section_ms[s] = timer.ms(static_cast<Section>(s)) / kRankingProfiled;
  }
}

template <class T>
void finish_figures(const Context& ctx, const RankingProblem& problem, RankingFigures& figures) {
  const DeviceMemory memory = device_memory();
  if (problem.device == Device::kCuda) figures.memory_bytes = memory.total - memory.free;
  run::PeakRate peak = run::make_peak_rate<T>(ctx, problem.peak_tflops);
  peak.reached(figures.flops.causal / figures.ms * 1e-9);
  figures.peak_tflops = peak.tflops();
}

template <class T>
RankingFigures measured_step(const RankingProblem& problem) {
  RankingFigures figures;
  if (problem.device == Device::kCuda) {
    figures.small = small_loss<T>(small_problem(problem, Device::kCuda));
    figures.small_cpu = small_loss<float>(small_problem(problem, Device::kCpu));
    TGR_CHECK(std::abs(figures.small - figures.small_cpu) <= 0.01 * std::abs(figures.small_cpu),
              "bench rank-step: the GPU's second loss on a small batch is ", figures.small,
              " and the CPU's ", figures.small_cpu, "; a timing of wrong answers is worth nothing");
  }
  const Counts counts = counts_of(problem.shape, problem.lengths);
  Context ctx({.device = problem.device, .threads = problem.threads});
  const auto alone = dist::make_self();
  train::RankingTrainer<T> step(ctx, *alone, train_options(problem, counts));
  step.initialise(ctx);
  const auto batches = make_batches(problem);
  time_steps(
      ctx, problem,
      [&](std::int64_t i) {
        step.submit(ctx, batches[static_cast<std::size_t>(i) % kRankingBatches]->view());
        if (step.pending() == step.queue_length()) figures.loss = step.finish(ctx).loss;
      },
      figures);
  while (step.pending() > 0) figures.loss = step.finish(ctx).loss;
  std::vector<double> host_ms;
  for (const auto& batch : batches) {  // with nothing of the device's to wait for
    synchronize(ctx);
    host_ms.push_back(milliseconds_of([&] { step.submit(ctx, batch->view()); }));
    step.finish(ctx);
  }
  figures.host_ms = summary_of(host_ms).ms;
  figures.tokens = counts.tokens;
  figures.distinct_rows = step.num_rows();
  const PlannedBytes tables = step.rows().bytes();
  figures.table_bytes = tables.gpu + tables.host;
  figures.flops = model::ranking_step_flops(problem.shape.model, problem.shape.nominal_length,
                                            {problem.lengths.history, problem.lengths.targets});
  finish_figures<T>(ctx, problem, figures);
  return figures;
}

template <class T>
void check_small_logits(const RankingProblem& problem, RankingFigures& figures) {
  const std::vector<float> gpu = small_logits<T>(small_problem(problem, Device::kCuda));
  const std::vector<float> cpu = small_logits<float>(small_problem(problem, Device::kCpu));
  TGR_CHECK(gpu.size() == cpu.size() && !cpu.empty(), "bench rank-request: ", gpu.size(),
            " logits of the GPU for ", cpu.size(), " of the CPU");
  double gap = 0, largest = 0;
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    gap = std::max(gap, static_cast<double>(std::abs(gpu[i] - cpu[i])));
    largest = std::max(largest, static_cast<double>(std::abs(cpu[i])));
  }
  figures.small = gap;
  figures.small_cpu = largest;
  TGR_CHECK(gap <= 0.05 * std::max(largest, 0.1),
            "bench rank-request: logits of a small request "
            "differ by up to ",
            gap, " from the CPU's, which reach ", largest,
            "; a timing of wrong answers is worth nothing");
}

template <class T>
RankingFigures measured_request(const RankingProblem& problem) {
  RankingFigures figures;
  if (problem.device == Device::kCuda) check_small_logits<T>(problem, figures);
  const Counts counts = counts_of(problem.shape, problem.lengths);
  Context ctx({.device = problem.device, .threads = problem.threads});
  RequestRunner<T> runner(ctx, problem, counts);
  const auto batches = make_batches(problem);
  const auto run = [&](std::int64_t i) {
    runner.run(ctx, batches[static_cast<std::size_t>(i) % kRankingBatches]->view());
  };
  time_steps(ctx, problem, run, figures);
  std::vector<double> host_ms;
  for (std::int64_t i = 0; i < 3; ++i) {
    synchronize(ctx);
    host_ms.push_back(milliseconds_of([&] { run(i); }));
  }
  synchronize(ctx);
  figures.host_ms = summary_of(host_ms).ms;
  figures.tokens = counts.tokens;
  figures.distinct_rows = runner.num_rows();
  figures.table_bytes = runner.table_bytes();
  figures.flops = model::ranking_forward_flops(problem.shape.model, problem.shape.nominal_length,
                                               {problem.lengths.history, problem.lengths.targets});
  finish_figures<T>(ctx, problem, figures);
  return figures;
}

}  // namespace

RankingFigures measure_ranking_step(const RankingProblem& problem) {
  return problem.dtype == DType::kBf16 ? measured_step<bf16>(problem)
                                       : measured_step<float>(problem);
}

RankingFigures measure_ranking_request(const RankingProblem& problem) {
  return problem.dtype == DType::kBf16 ? measured_request<bf16>(problem)
                                       : measured_request<float>(problem);
}

}  // namespace turbogr::bench
