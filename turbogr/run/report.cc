#include "turbogr/run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/progress.h"
#include "turbogr/core/version.h"
#include "turbogr/run/calibration.h"
#include "turbogr/run/config_entries.h"
#include "turbogr/run/config_keys.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/page.h"
#include "turbogr/run/timeline.h"

namespace turbogr::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Point {
  double step;
  double value;
};
using Series = std::vector<Point>;

// What one run logged, sorted by what it is: training figures by name, evaluations by split, name.
struct Curves {
  std::map<std::string, Series> train;
  std::map<std::string, std::map<std::string, Series>> splits;
  std::vector<MetricRecord> evaluations;
  std::vector<std::string> evaluation_names;  // in the order they first came
  std::map<std::string, double> repeats;      // by split, the newest: targets met before
  double last_step = 0.0;
  double last_epoch = 0.0;
};

// The figure of "auc", and of "click.auc", which is of one task.
std::string_view figure_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool less_is_better(std::string_view name) {
  const std::string_view figure = figure_of(name);
  return figure == "loss" || figure == "ne" || figure == "mse" || figure == "mae";
}

// What an evaluation says besides quality.
bool is_count(std::string_view name) {
  const std::string_view figure = figure_of(name);
  return figure == "users" || figure == "repeats" || figure == "targets" || figure == "groups";
}

Curves sort_records(const std::vector<MetricRecord>& records) {
  Curves curves;
  for (const MetricRecord& record : records) {
    const auto step = static_cast<double>(record.step);
    curves.last_step = std::max(curves.last_step, step);
    curves.last_epoch = std::max(curves.last_epoch, record.epoch);
    auto& target = record.split.empty() ? curves.train : curves.splits[record.split];
    for (const auto& [name, value] : record.values) {
      if (!record.split.empty() && is_count(name)) {
        if (name == "repeats") curves.repeats[record.split] = value;
        continue;  // no figure of quality
      }
      target[name].push_back({step, value});
      auto& names = curves.evaluation_names;
      if (!record.split.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
    if (!record.split.empty()) curves.evaluations.push_back(record);
  }
  return curves;
}

// At most `most` points, each the mean of its neighbours: a page must stay small however long the
// run was.
Series thinned(const Series& series, std::size_t most = 1000) {
  if (series.size() <= most) return series;
  Series thin;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = i * series.size() / most;
    const std::size_t end = (i + 1) * series.size() / most;
    Point mean{0.0, 0.0};
    for (std::size_t j = begin; j < end; ++j) {
      mean.step += series[j].step / static_cast<double>(end - begin);
      mean.value += series[j].value / static_cast<double>(end - begin);
    }
    thin.push_back(mean);
  }
  return thin;
}

ordered_json line(const std::string& name, const Series& series, int colour, bool dashed = false) {
  ordered_json points = ordered_json::array();
  for (const Point& point : thinned(series)) points.push_back({point.step, point.value});
  return {{"name", name}, {"colour", colour}, {"dashed", dashed}, {"points", std::move(points)}};
}

// Of each task the newest evaluation of every split, the first split solid, the others dashed.
ordered_json calibrations_of(const Curves& curves) {
  std::map<std::string, const MetricRecord*> newest;  // by split
  for (const MetricRecord& record : curves.evaluations) {
    if (!record.calibration.empty()) newest[record.split] = &record;
  }
  std::vector<std::string> tasks;
  std::map<std::string, ordered_json> lines;  // by task
  for (const auto& [split, record] : newest) {
    for (const TaskCalibration& task : record->calibration) {
      if (!lines.contains(task.task)) {
        tasks.push_back(task.task);
        lines[task.task] = ordered_json::array();
      }
      ordered_json bins = ordered_json::array();
      std::int64_t targets = 0;
      for (const eval::CalibrationBin& bin : task.bins) {
        bins.push_back({bin.predicted, bin.observed, bin.targets});
        targets += bin.targets;
      }
      lines[task.task].push_back(
          {{"name", fmt::format("{}, step {}, {} targets", split, grouped_text(record->step),
                                grouped_text(targets))},
           {"colour", 0},
           {"dashed", !lines[task.task].empty()},
           {"bins", std::move(bins)}});
    }
  }
  ordered_json charts = ordered_json::array();
  for (const std::string& task : tasks) {
    charts.push_back({{"title", "Calibration of " + task}, {"lines", std::move(lines[task])}});
  }
  return charts;
}

struct ChartStyle {
  bool smooth = false;
  bool from_zero = true;
};

void add_chart(ordered_json& charts, const std::string& title, const std::string& form,
               ordered_json lines, ChartStyle style) {
  if (lines.empty()) return;
  charts.push_back({{"title", title},
                    {"form", form},
                    {"smooth", style.smooth},
                    {"from_zero", style.from_zero},
                    {"lines", std::move(lines)}});
}

// Training figures under one title, those of them that were logged.
ordered_json train_lines(const Curves& curves,
                         const std::vector<std::pair<std::string, std::string>>& names) {
  ordered_json lines = ordered_json::array();
  for (const auto& [key, label] : names) {
    const auto found = curves.train.find(key);
    if (found != curves.train.end()) {
      lines.push_back(line(label, found->second, static_cast<int>(lines.size())));
    }
  }
  return lines;
}

// One colour a figure; the first split solid, the others dashed.
ordered_json quality_lines(const Curves& curves, std::string_view prefix) {
  ordered_json lines = ordered_json::array();
  int colour = 0;
  for (const std::string& name : curves.evaluation_names) {
    if (!figure_of(name).starts_with(prefix)) continue;
    bool dashed = false;
    for (const auto& [split, figures] : curves.splits) {
      const auto found = figures.find(name);
      if (found != figures.end()) {
        lines.push_back(line(name + " " + split, found->second, colour, dashed));
      }
      dashed = true;
    }
    ++colour;
  }
  return lines;
}

ordered_json charts_of(const Curves& curves) {
  ordered_json charts = ordered_json::array();
  ordered_json loss = train_lines(curves, {{"loss", "training"}});
  for (const auto& [split, figures] : curves.splits) {
    const auto found = figures.find("loss");
    if (found != figures.end()) {
      loss.push_back(line(split, found->second, static_cast<int>(loss.size())));
    }
  }
  add_chart(charts, "Loss", "number", std::move(loss), {.smooth = true, .from_zero = false});
  add_chart(charts, "Hit rate", "number", quality_lines(curves, "hr@"), {});
  add_chart(charts, "NDCG", "number", quality_lines(curves, "ndcg@"), {});
  add_chart(charts, "MRR", "number", quality_lines(curves, "mrr"), {});
  add_chart(charts, "AUC", "number", quality_lines(curves, "auc"), {.from_zero = false});
  add_chart(charts, "AUC inside groups (GAUC)", "number", quality_lines(curves, "gauc"),
            {.from_zero = false});
  add_chart(charts, "Normalised entropy", "number", quality_lines(curves, "ne"),
            {.from_zero = false});
  add_chart(charts, "Accuracy", "number", quality_lines(curves, "accuracy"), {.from_zero = false});
  add_chart(charts, "Squared error", "number", quality_lines(curves, "mse"), {});
  add_chart(charts, "Throughput, tokens/s", "count",
            train_lines(curves, {{"tokens_per_s", "tokens/s"}}), {.smooth = true});
  add_chart(charts, "Model FLOPs utilisation", "percent",
            train_lines(curves, {{"mfu_causal", "causal"}, {"mfu_paper", "paper"}}),
            {.smooth = true});
  add_chart(charts, "Learning rate", "small", train_lines(curves, {{"lr", "lr"}}), {});
  add_chart(charts, "Gradient norm", "number", train_lines(curves, {{"grad_norm", "norm"}}),
            {.smooth = true});
  return charts;
}

std::optional<double> median(const Curves& curves, const std::string& name) {
  const auto found = curves.train.find(name);
  if (found == curves.train.end() || found->second.empty()) return std::nullopt;
  std::vector<double> values;
  for (const Point& point : found->second) values.push_back(point.value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What MFU is a share of, and where that figure came from. Runs of older programs log it by another
// name, or not at all.
std::optional<std::pair<std::string, std::string>> peak_of(const Curves& curves,
                                                           const std::optional<Config>& config) {
  auto logged = curves.train.find("peak_tflops");
  if (logged == curves.train.end()) logged = curves.train.find("roof_tflops");
  const bool given = config && config->train.peak_tflops > 0;
  if (logged == curves.train.end() && !given) return std::nullopt;
  double least = given ? config->train.peak_tflops : 0, most = least;
  if (logged != curves.train.end()) {
    const auto [low, high] =
        std::minmax_element(logged->second.begin(), logged->second.end(),
                            [](const Point& a, const Point& b) { return a.value < b.value; });
    least = low->value;
    most = high->value;
  }
  const std::string range =
      least < most ? fmt::format("{:.3g} to {:.3g}", least, most) : fmt::format("{:.3g}", most);
  return std::pair(
      range + " TFLOP/s",
      std::string(given ? "set by train.peak_tflops"
                  : config && config->train.device == "cuda"
                      ? "the GPU's published peak, or its best large product"
                  : least < most ? "measured several times: the best large product"
                                 : "measured at the run's start: the best large product"));
}

// The figures a reader looks for first.
ordered_json tiles_of(const Curves& curves, const std::optional<Config>& config) {
  ordered_json tiles = ordered_json::array();
  const auto add = [&](const std::string& label, const std::string& value,
                       const std::string& note) {
    tiles.push_back({{"label", label}, {"value", value}, {"note", note}});
  };
  add("steps", grouped_text(static_cast<std::int64_t>(curves.last_step)),
      fmt::format("{:.4g} epochs", curves.last_epoch));
  const auto loss = curves.train.find("loss");
  if (loss != curves.train.end()) {
    add("loss", fmt::format("{:.4f}", loss->second.back().value),
        fmt::format("from {:.4f}", loss->second.front().value));
  }
  for (const auto& [split, figures] : curves.splits) {
    for (const char* name : {"hr@10", "ndcg@10", "auc", "gauc", "ne"}) {
      const auto found = figures.find(name);
      if (found == figures.end()) continue;
      const auto best =
          std::max_element(found->second.begin(), found->second.end(),
                           [less = less_is_better(name)](const Point& a, const Point& b) {
                             return less ? b.value < a.value : a.value < b.value;
                           });
      add(fmt::format("{} {}", split, name), fmt::format("{:.4f}", found->second.back().value),
          found->second.size() == 1
              ? fmt::format("at step {}", grouped_text(static_cast<std::int64_t>(best->step)))
              : fmt::format("best {:.4f} at step {}", best->value,
                            grouped_text(static_cast<std::int64_t>(best->step))));
    }
  }
  if (const auto rate = median(curves, "tokens_per_s")) {
    add("tokens/s", grouped_text(static_cast<std::int64_t>(*rate)), "median, without evaluation");
  }
  if (const auto mfu = median(curves, "mfu_causal")) {
    const auto paper = median(curves, "mfu_paper");
    add("MFU, causal", fmt::format("{:.1f}%", 100.0 * *mfu),
        paper ? fmt::format("median; paper convention {:.1f}%", 100.0 * *paper) : "median");
    if (const auto peak = peak_of(curves, config)) add("MFU peak", peak->first, peak->second);
  }
  const auto skipped = curves.train.find("skipped_steps");
  if (skipped != curves.train.end() && skipped->second.back().value > 0) {
    add("skipped steps", grouped_text(static_cast<std::int64_t>(skipped->second.back().value)),
        "loss or gradient not finite");
  }
  return tiles;
}

// By which rule about items already met the figures were counted; of the ranking task, whose
// targets GAUC compares.
std::string rule_note(const Curves& curves, const std::optional<Config>& config) {
  if (!config) return "";
  if (config->ranks()) {
    return fmt::format("GAUC compares the targets of each {0} (eval.group = \"{0}\").",
                       config->eval.group);
  }
  const std::string& seen = config->eval.seen;
  if (seen == "auto") return "Seen items removed, but never the target: the rule before eval.seen.";
  std::string shares;
  for (const auto& [split, share] : curves.repeats) {
    shares +=
        fmt::format("{}{:.1f}% of {} targets", shares.empty() ? "" : ", ", 100 * share, split);
  }
  return fmt::format("{} (eval.seen = \"{}\"){}.",
                     seen == "keep" ? "Seen items stay candidates"
                                    : "Seen items dropped: a target met before is a miss",
                     seen, shares.empty() ? "" : "; met before: " + shares);
}

ordered_json evaluation_table(const Curves& curves, const std::optional<Config>& config) {
  ordered_json rows = ordered_json::array();
  for (const MetricRecord& record : curves.evaluations) {
    ordered_json row = {record.step, record.epoch, record.split};
    for (const std::string& name : curves.evaluation_names) {
      const auto found = std::find_if(record.values.begin(), record.values.end(),
                                      [&](const auto& value) { return value.first == name; });
      row.push_back(found == record.values.end() ? ordered_json() : ordered_json(found->second));
    }
    rows.push_back(std::move(row));
  }
  std::vector<bool> less;
  for (const std::string& name : curves.evaluation_names) less.push_back(less_is_better(name));
  return {{"names", curves.evaluation_names},
          {"less_is_better", less},
          {"note", rule_note(curves, config)},
          {"rows", std::move(rows)}};
}

ordered_json lengths_of(const std::string& path) {
  if (!fs::exists(path)) return nullptr;
  const LengthHistogram histogram = read_lengths(path);
  if (histogram.count == 0) return nullptr;
  ordered_json bins = ordered_json::array();
  for (const LengthHistogram::Bin& bin : histogram.bins) {
    bins.push_back({bin.from, bin.to, bin.count});
  }
  return {{"bins", std::move(bins)},
          {"note", fmt::format("{} sequences; mean {:.1f}, median {}, p90 {}, p99 {}, longest {}",
                               grouped_text(histogram.count), histogram.mean,
                               grouped_text(histogram.p50), grouped_text(histogram.p90),
                               grouped_text(histogram.p99), grouped_text(histogram.max))}};
}

// By stage: [name, kind, share, bubble before, hidden]. A trace too short to tell is left out.
ordered_json timeline_of(const std::string& path) {
  if (!fs::exists(path)) return nullptr;
  run::Timeline timeline;
  try {
    timeline = run::read_timeline(path);
  } catch (const Error&) {
    return nullptr;
  }
  ordered_json rows = ordered_json::array();
  for (const run::Timeline::Row& row : timeline.stages) {
    rows.push_back({row.name, text_of(row.kind), row.share, row.bubble, row.hidden});
  }
  using train::StageKind;
  const ordered_json shares = {{"compute", timeline.share_of(StageKind::kCompute)},
                               {"exposed sparse", timeline.share_of(StageKind::kSparse)},
                               {"exposed dense", timeline.share_of(StageKind::kDense)},
                               {"input", timeline.share_of(StageKind::kInput)},
                               {"bubbles", timeline.bubbles()}};
  return {
      {"note", fmt::format("{} steps of {} ranks, {:.3g} ms each", timeline.steps, timeline.ranks,
                           1e3 * timeline.seconds / static_cast<double>(timeline.steps))},
      {"shares", shares},
      {"rows", std::move(rows)}};
}

// Nothing when there is none, or one this program cannot read (an older run's).
std::optional<Config> read_config(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  try {
    return parse_config(read_file(path), path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Sections of [key, value, differs from the default]. A text this program cannot read is shown as
// it is.
ordered_json config_of(const std::optional<Config>& config, const std::string& path) {
  if (!config) return fs::exists(path) ? ordered_json({{"text", read_file(path)}}) : ordered_json();
  const Config defaults = parse_config("", "defaults");
  ordered_json sections;
  const auto add = [&](const ConfigKey& key) {
    const std::size_t dot = key.name.rfind('.');
    sections[key.name.substr(0, dot)].push_back({key.name.substr(dot + 1),
                                                 config_value_text(key.get(*config)),
                                                 key.get(*config) != key.get(defaults)});
  };
  for (const ConfigKey& key : config_keys()) add(key);
  for (const ConfigKey& key : entry_keys(*config)) add(key);
  return {{"sections", std::move(sections)}};
}

// "hstu, 2 layers x 64 wide, bias both, on stores/demo"
std::string summary_of(const std::optional<Config>& config) {
  if (!config) return "";
  return fmt::format("{}, {} layers x {} wide, {}{}{}", config->model.kind, config->model.layers,
                     config->model.width,
                     config->ranks() ? "ranking" : "bias " + config->model.bias,
                     config->data.store.empty() ? "" : ", on ", config->data.store);
}

// What the newest checkpoint says was logged before it.
std::optional<LoggedBytes> logged_by(const std::string& run_folder) {
  const std::vector<std::string> checkpoints =
      checkpoint::list_checkpoints(run_folder + "/checkpoints");
  if (checkpoints.empty()) return std::nullopt;
  try {
    return LoggedBytes::of(checkpoint::Checkpoint(checkpoints.front()).state());
  } catch (const Error&) {  // damaged, or gone by now: figures can be shown without it
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

std::vector<std::string> notes_of(const std::vector<MetricRecord>& records) {
  std::vector<std::string> notes;
  for (const MetricRecord& record : records) {
    if (!record.note.empty()) notes.push_back(record.note);
  }
  return notes;
}

}  // namespace

std::string report_page(const std::string& run_folder) {
  const std::string metrics = run_folder + "/metrics.jsonl";
  TGR_CHECK(fs::is_directory(run_folder), "there is no run folder '", run_folder, "'");
  const std::optional<LoggedBytes> logged = logged_by(run_folder);  // before a run at work goes on
  const bool lost =
      logged && logged->bytes > 0 && (!fs::exists(metrics) || !logged->are_in(read_file(metrics)));
  TGR_CHECK(
      fs::exists(metrics), "'", run_folder, "' has no metrics.jsonl; ",
      lost ? "figures were logged and are gone with it: put the file back" : "is it a run folder?");
  std::int64_t skipped = 0;
  const std::vector<MetricRecord> records = read_json_lines(metrics, &skipped);
  TGR_CHECK(
      !records.empty(), "'", metrics, "' holds no figures ",
      lost ? "any more, and some were logged: put the file back" : "yet; train some steps first");
  std::vector<std::string> notes = notes_of(records);
  if (lost) {
    notes.push_back(fmt::format(
        "figures are missing: {} no longer begins as it did when the newest checkpoint was saved",
        metrics));
  }
  for (const std::string& note : notes) log::warn("{}", note);
  const Curves curves = sort_records(records);
  const fs::path folder = fs::weakly_canonical(run_folder);
  const std::string config_path = run_folder + "/config.toml";
  const std::optional<Config> config = read_config(config_path);
  const ordered_json data = {{"name", folder.filename().string()},
                             {"summary", summary_of(config)},
                             {"made_by", fmt::format("turbogr {} ({})", version(), commit())},
                             {"skipped", skipped},
                             {"notes", notes},
                             {"last_step", curves.last_step},
                             {"tiles", tiles_of(curves, config)},
                             {"charts", charts_of(curves)},
                             {"calibrations", calibrations_of(curves)},
                             {"evaluations", evaluation_table(curves, config)},
                             {"lengths", lengths_of(run_folder + "/lengths.json")},
                             {"timeline", timeline_of(run_folder + "/trace.json")},
                             {"config", config_of(config, config_path)}};
  return page_of(data.dump(-1, ' ', false, ordered_json::error_handler_t::replace), kReportScript);
}

std::string write_report(const std::string& run_folder, const std::string& path) {
  std::string target = path.empty() ? run_folder + "/report.html" : path;
  replace_file(target, report_page(run_folder));
  return target;
}

}  // namespace turbogr::run
