#include "turbogr/run/tune.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/file.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/utf8.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/store.h"
#include "turbogr/run/config_keys.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/task.h"
#include "turbogr/run/training_run.h"

namespace turbogr::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNone = -std::numeric_limits<double>::infinity();

void check_base(const Config& base, const TuneOptions& options) {
  TGR_CHECK(options.trials >= 1, "--trials ", options.trials, "; at least 1");
  TGR_CHECK(is_utf8(options.folder), "--out '", options.folder,
            "' is not UTF-8 text, and a trial could not read its config again; name a folder in "
            "UTF-8");
  TGR_CHECK(!base.data.store.empty(),
            "data.store is not set; name a store, e.g. --data.store=stores/mine");
  TGR_CHECK(data::Holdout(base.data.holdout).has_validation(),
            "a search chooses by the validation split, which data.holdout = \"", base.data.holdout,
            "\" does not have; set data.holdout = \"validation_test\"");
  TGR_CHECK(!less_is_better(base.eval.metric),
            "a search looks for the most of a figure, and of eval.metric = \"", base.eval.metric,
            "\" less is better; use auc or gauc");
  TGR_CHECK(base.train.epochs > 0,
            "a search gives its trials a share of train.epochs, which is 0; set it");
  TGR_CHECK(base.run.start_from.empty() && !base.run.resume,
            "run.start_from and run.resume are for one run, and a search trains many models of "
            "different sizes; leave them out");
}

// What all trials have in common that a run by itself need not.
Config for_trials(Config config) {
  if (config.eval.every == 0) {
    config.eval.every = std::max<std::int64_t>(1, config.train.epochs / 10);
  }
  config.checkpoint.keep_best = std::max<std::int64_t>(1, config.checkpoint.keep_best);
  config.log.progress = "none";
  config.log.tensorboard = false;
  config.run.trace = false;
  return config;
}

// One search a folder at a time; the lock ends with the process.
FileHandle open_folder(const Config& base, const TuneOptions& options) {
  const fs::path folder = options.folder;
  const fs::path plan = folder / "tune.json";
  std::error_code error;
  TGR_CHECK(fs::exists(plan, error) || !fs::exists(folder, error) || fs::is_empty(folder, error),
            "'", options.folder,
            "' is not empty and holds no search; name another folder with "
            "--out");
  fs::create_directories(folder, error);
  TGR_CHECK(!error, "cannot make the folder '", options.folder, "': ", error.message());
  FileHandle lock(folder, O_RDONLY | O_DIRECTORY);
  TGR_CHECK(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, "'",
            options.folder, "' is in use by another search; wait for it, or name another folder");
  const json wanted = {{"version", 1},
                       {"trials", options.trials},
                       {"seed", options.seed},
                       {"vary", options.vary},
                       {"config", config_text(base)}};
  if (!fs::exists(plan)) {
    replace_file(plan.string(), wanted.dump(1) + "\n");
    return lock;
  }
  const json found = parse_json(read_file(plan.string()));
  TGR_CHECK(found.is_object() && found.value("version", json()) == 1 && found.contains("config") &&
                found["config"].is_string(),
            "'", plan.string(),
            "' is not the plan of a search as this program writes it; name "
            "another folder with --out");
  const std::vector<std::string> differences =
      config_differences(parse_config(found["config"].get<std::string>(), plan.string()), base, "");
  TGR_CHECK(differences.empty(), "'", options.folder, "' holds a search of another config (",
            differences.front(), "); name another folder with --out, or give the same config");
  TGR_CHECK(found == wanted, "'", options.folder,
            "' holds a search with other options (--trials, --seed or --vary); give the same, or "
            "name another folder with --out");
  log::info("going on with the search in '{}'", options.folder);
  return lock;
}

// What the trial's run has logged so far.
void read_curve(Trial& trial, const std::string& metric) {
  trial.curve.clear();
  trial.ended = false;
  const std::string path = trial.config.run.dir + "/metrics.jsonl";
  if (!fs::exists(path)) return;
  for (const MetricRecord& record : read_json_lines(path)) {
    if (record.split == "test") trial.ended = true;  // waits for the end of a run
    if (record.split != "validation") continue;
    for (const auto& [name, value] : record.values) {
      if (name == metric) trial.curve.emplace_back(record.epoch, value);
    }
  }
}

std::string settings_text(const Config& config) {
  std::string text;
  for (const std::string& setting : tuned_settings(config)) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", setting, setting_text(config, setting));
  }
  return text;
}

// Trains up to `epochs` in all, or to the end when they are all. False: a signal stopped it, or
// came while it failed.
bool train_trial(Trial& trial, std::int64_t epochs, const std::string& metric,
                 dist::Communicator& world) {
  if (!trial.fault.empty() || trial.ended || trial.epochs() + 1e-6 >= static_cast<double>(epochs)) {
    return true;
  }
  Config config = for_trials(trial.config);
  config.run.resume = !checkpoint::list_checkpoints(config.run.dir + "/checkpoints").empty();
  try {
    // Killed before its first checkpoint: it begins again.
    if (!config.run.resume) fs::remove_all(config.run.dir);
    resolve_config(config);
    const RunControl control = {.pause_after = epochs < config.train.epochs ? epochs : 0,
                                .quiet = true};
    if (run_training(config, "turbogr tune", world, control) == RunEnd::kInterrupted) return false;
  } catch (const Error& error) {
    trial.fault = error.what();
  }
  read_curve(trial, metric);
  return !data::interrupted();
}

void sort_by(std::vector<Trial>& trials, double epochs) {
  std::stable_sort(trials.begin(), trials.end(), [&](const Trial& a, const Trial& b) {
    // One that failed may have figures: those from before it did.
    return std::tuple(!a.fault.empty(), -a.best(epochs), a.number) <
           std::tuple(!b.fault.empty(), -b.best(epochs), b.number);
  });
}

void write_results(const std::vector<Trial>& trials, const Config& base,
                   const TuneOptions& options) {
  Config best = trials.front().config;
  best.run.dir = base.run.dir;
  replace_file(options.folder + "/best.toml", config_text(best));
  replace_file(options.folder + "/tune.html",
               trials_page(trials, base.eval.metric, options.folder));
}

}  // namespace

double Trial::best(double epochs) const {
  double best = kNone;
  for (const auto& [epoch, value] : curve) {
    if (epoch <= epochs + 1e-6) best = std::max(best, value);
  }
  return best;
}

double Trial::best() const { return best(std::numeric_limits<double>::infinity()); }

std::vector<Trial> tune(const Config& base, const TuneOptions& given, dist::Communicator& world) {
  TuneOptions options = given;
  if (options.vary.empty()) options.vary = tuned_settings(base);
  check_base(base, options);
  const std::int64_t items = data::Store(base.data.store).num_items();
  const std::vector<Config> configs =
      draw_trials(base, items, options.trials, options.vary, options.seed);
  const data::InterruptGuard guard;
  const FileHandle lock = open_folder(base, options);
  std::vector<Trial> alive;
  for (const Config& config : configs) {
    Trial trial;
    trial.number = static_cast<std::int64_t>(alive.size()) + 1;
    trial.config = config;
    trial.config.run.dir = fmt::format("{}/trial-{:02}", options.folder, trial.number);
    read_curve(trial, base.eval.metric);
    alive.push_back(std::move(trial));
  }
  const std::vector<Rung> rungs =
      plan_rungs(options.trials, base.train.epochs, for_trials(base).eval.every);
  std::vector<Trial> left_behind;
  for (std::size_t r = 0; r < rungs.size(); ++r) {
    fmt::print("round {} of {}: {} trials to {} epochs\n", r + 1, rungs.size(), alive.size(),
               rungs[r].epochs);
    const auto epochs = static_cast<double>(rungs[r].epochs);
    for (Trial& trial : alive) {
      std::fflush(stdout);
      const bool trained = train_trial(trial, rungs[r].epochs, base.eval.metric, world);
      TGR_CHECK(is_at(lock.get(), options.folder), "'", options.folder,
                "' is no longer the folder this search began in: that was renamed, deleted or "
                "replaced while it ran; put it back and give the same command to go on");
      if (!trained) {
        log::info("stopped; the same command goes on with the search");
        return {};
      }
      if (trial.fault.empty() && trial.curve.empty()) {
        trial.fault = "no evaluation gave eval.metric = \"" + base.eval.metric + "\"";
      }
      if (!trial.fault.empty()) {
        log::warn("trial {} ({}) failed: {}", trial.number, settings_text(trial.config),
                  trial.fault);
        continue;
      }
      fmt::print("  trial {:>3}: {}: {} {:.4f}\n", trial.number, settings_text(trial.config),
                 base.eval.metric, trial.best(epochs));
    }
    sort_by(alive, epochs);
    TGR_CHECK(alive.front().fault.empty(),
              "no trial could be trained, so there is no best one; the first said: ",
              alive.front().fault);
    if (r + 1 == rungs.size()) break;
    while (std::ssize(alive) > rungs[r + 1].trials) {
      fs::remove_all(alive.back().config.run.dir + "/checkpoints");
      left_behind.insert(left_behind.begin(), std::move(alive.back()));
      alive.pop_back();
    }
  }
  // Those that were trained longer stand first, as they were chosen; figures of fewer epochs do not
  // compare with theirs.
  alive.insert(alive.end(), left_behind.begin(), left_behind.end());
  write_results(alive, base, options);
  fmt::print("\n{}\n", trials_table(alive, base.eval.metric));
  fmt::print(
      "best: trial {}; train it anew with `turbogr train {}/best.toml`, or use it as it is: "
      "`turbogr eval --checkpoint {}`\ntable and curves: {}/tune.html\n",
      alive.front().number, options.folder, alive.front().config.run.dir, options.folder);
  return alive;
}

std::string trials_table(const std::vector<Trial>& trials, const std::string& metric) {
  std::string text = fmt::format("{:>5}", "trial");
  const std::vector<std::string>& settings = tuned_settings(trials.front().config);
  for (const std::string& setting : settings) text += fmt::format("  {:>9}", setting);
  text += fmt::format("  {:>7}  {:>9}\n", "epochs", metric);
  for (const Trial& trial : trials) {
    text += fmt::format("{:>5}", trial.number);
    for (const std::string& setting : settings) {
      text += fmt::format("  {:>9}", setting_text(trial.config, setting));
    }
    text += trial.fault.empty()
                ? fmt::format("  {:>7.0f}  {:>9.4f}\n", trial.epochs(), trial.best())
                : fmt::format("  {:>7.0f}  {:>9}\n", trial.epochs(), "failed");
  }
  return text;
}

}  // namespace turbogr::run
