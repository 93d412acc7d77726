#include "turbogr/run/tune_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::run {
namespace {

constexpr std::int64_t kThird = 3;
constexpr double kRateFactor = 5;

double uniform(PhiloxStream& random) {
  return static_cast<double>(random.next_u64() >> 11) * 0x1p-53;
}

std::int64_t one_of(PhiloxStream& random, const std::vector<std::int64_t>& values) {
  return values[uniform_below(random.next_u64(), values.size())];
}

// Two digits: a table for people.
double rounded(double value) {
  const double digit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return std::stod(fmt::format("{:.3g}", std::round(value / digit) * digit));
}

void vary_rate(Config& config, PhiloxStream& random) {
  const double lr = rounded(config.optim.lr * std::pow(kRateFactor, 2 * uniform(random) - 1));
  const double ratio = config.embedding.lr / config.optim.lr;
  config.optim.lr = lr;
  config.embedding.lr = std::stod(fmt::format("{:.6g}", lr * ratio));
}

void vary_table_rate(Config& config, PhiloxStream& random) {
  config.embedding.lr =
      rounded(config.embedding.lr * std::pow(kRateFactor, 2 * uniform(random) - 1));
}

void vary_width(Config& config, PhiloxStream& random) {
  ModelConfig& model = config.model;
  std::vector<std::int64_t> widths;
  for (const std::int64_t width : {model.width / 2, model.width, model.width * 2}) {
    if (width >= model.heads && width % model.heads == 0) widths.push_back(width);
  }
  if (widths.empty()) return;  // heads that do not divide the width: dq and dv are set by hand
  const std::int64_t was = model.width;
  model.width = one_of(random, widths);
  if (model.dq * model.heads == was) model.dq = model.width / model.heads;
  if (model.dv * model.heads == was) model.dv = model.width / model.heads;
  if (model.hidden == was) model.hidden = model.width;
  if (model.head_hidden == was) model.head_hidden = model.width;
}

void vary_layers(Config& config, PhiloxStream& random) {
  std::vector<std::int64_t> layers;
  const std::int64_t least = std::max<std::int64_t>(1, config.model.layers / 2);
  const std::int64_t stride = std::max<std::int64_t>(1, config.model.layers / 2);
  for (std::int64_t n = least; n <= 2 * config.model.layers; n += stride) layers.push_back(n);
  config.model.layers = one_of(random, layers);
}

void vary_negatives(Config& config, std::int64_t items, PhiloxStream& random) {
  const std::int64_t count = config.negatives.count;
  std::vector<std::int64_t> counts;
  for (const std::int64_t n : {count / 2, count, 2 * count, 4 * count}) {
    if (n >= 1 && n < items) counts.push_back(n);
  }
  if (!counts.empty()) config.negatives.count = one_of(random, counts);
}

}  // namespace

const std::vector<std::string>& tuned_settings(const Config& config) {
  static const std::vector<std::string> retrieval = {"lr", "dropout", "width", "layers",
                                                     "negatives"};
  static const std::vector<std::string> ranking = {"lr", "dropout", "width", "layers", "tables"};
  return config.ranks() ? ranking : retrieval;
}

std::string setting_text(const Config& config, std::string_view setting) {
  if (setting == "lr") return fmt::format("{:.2g}", config.optim.lr);
  if (setting == "dropout") return fmt::format("{:.2g}", config.model.dropout);
  if (setting == "width") return fmt::format("{}", config.model.width);
  if (setting == "layers") return fmt::format("{}", config.model.layers);
  if (setting == "tables") return fmt::format("{:.2g}", config.embedding.lr);
  return fmt::format("{}", config.negatives.count);
}

std::vector<Config> draw_trials(const Config& base, std::int64_t items, std::int64_t count,
                                const std::vector<std::string>& vary, std::uint64_t seed) {
  for (const std::string& setting : vary) {
    const auto& known = tuned_settings(base);
    TGR_CHECK(std::find(known.begin(), known.end(), setting) != known.end(), "--vary ", setting,
              ": no such setting; there are ", fmt::format("{}", fmt::join(known, ", ")));
  }
  const auto varies = [&](std::string_view setting) {
    return std::find(vary.begin(), vary.end(), setting) != vary.end();
  };
  std::vector<Config> trials(static_cast<std::size_t>(count), base);
  for (std::size_t trial = 1; trial < trials.size(); ++trial) {
    PhiloxStream random(seed, trial);  // of its own: more trials leave the first ones as they are
    Config& config = trials[trial];
    if (varies("lr")) vary_rate(config, random);
    if (varies("dropout"))
      config.model.dropout = static_cast<double>(one_of(random, {0, 1, 2, 3, 4, 5})) / 10;
    if (varies("width")) vary_width(config, random);
    if (varies("layers")) vary_layers(config, random);
    if (varies("negatives")) vary_negatives(config, items, random);
    if (varies("tables")) vary_table_rate(config, random);
  }
  return trials;
}

std::vector<Rung> plan_rungs(std::int64_t trials, std::int64_t epochs,
                             std::int64_t evaluate_every) {
  std::vector<Rung> rungs = {{trials, epochs}};
  const auto whole = [&](std::int64_t part) {
    return std::max(evaluate_every, part / evaluate_every * evaluate_every);
  };
  // From the end backwards: each rung before has a third of the epochs.
  std::int64_t left = trials;
  while (left > kThird && whole(rungs.front().epochs / kThird) < rungs.front().epochs) {
    rungs.insert(rungs.begin(), {trials, whole(rungs.front().epochs / kThird)});
    left = (left + kThird - 1) / kThird;
  }
  for (std::size_t r = 1; r < rungs.size(); ++r) {
    rungs[r].trials = (rungs[r - 1].trials + kThird - 1) / kThird;
  }
  return rungs;
}

}  // namespace turbogr::run
