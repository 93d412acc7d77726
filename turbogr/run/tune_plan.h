// What a search tries, and for how long: random draws round a config, and successive halving, which
// trains all a little, the better third longer, and the best to the end. Pure functions of their
// arguments, so that a search that was killed finds its plan again.
//
//   for (const Config& config : draw_trials(base, items, 20, tuned_settings(base), seed)) ...
//   for (const Rung& rung : plan_rungs(20, base.train.epochs, base.eval.every)) ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/run/config.h"

namespace turbogr::run {

// What can be varied: "lr", "dropout", "width", "layers" and "negatives", in ranking "tables".
const std::vector<std::string>& tuned_settings(const Config& config);

// The value of a setting in a config, as the table shows it.
std::string setting_text(const Config& config, std::string_view setting);

// `count` configs, the first of them `base` itself. Learning rates lie within a factor of 5, evenly
// in the logarithm, and the item table's goes along; dropout is 0 to 0.5 in tenths; width half,
// once or twice, layers up to twice the config's, negatives half to four times, fewer than the
// items; the rate of ranking's tables once more within a factor of 5 by itself.
std::vector<Config> draw_trials(const Config& base, std::int64_t items, std::int64_t count,
                                const std::vector<std::string>& vary, std::uint64_t seed);

struct Rung {
  std::int64_t trials;  // the best so many of the rung before
  std::int64_t epochs;  // are trained until they have so many in all

  bool operator==(const Rung&) const = default;
};

// From all trials and few epochs to few trials and all epochs, by thirds; three trials, or fewer,
// go all the way. Epochs are multiples of `evaluate_every`, so that each rung ends with a figure.
std::vector<Rung> plan_rungs(std::int64_t trials, std::int64_t epochs, std::int64_t evaluate_every);

}  // namespace turbogr::run
