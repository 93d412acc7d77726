#include "turbogr/run/popularity.h"

#include <fmt/format.h>

#include "turbogr/data/target_counts.h"
#include "turbogr/data/windows.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {

std::vector<float> item_popularity(const Config& config, const data::Store& store) {
  const std::vector<std::int64_t> counts = data::target_counts(
      store, data::make_windows(store, train_loader_options(config, store).windows));
  return {counts.begin(), counts.end()};
}

std::string below_popularity(std::string_view split, const eval::RankingMetrics& model,
                             const eval::RankingMetrics& popularity, const std::string& metric) {
  const auto own = model.figures();
  const auto other = popularity.figures();
  std::size_t place = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].first == metric) place = i;
  }
  if (own[place].second >= other[place].second) return "";
  return fmt::format(
      "the model ranks worse than popularity on the {} split ({} {:.4f} against {:.4f}): it has "
      "learnt too little. Train for longer (train.epochs, train.patience), or let `turbogr tune` "
      "look for better settings",
      split, own[place].first, own[place].second, other[place].second);
}

}  // namespace turbogr::run
