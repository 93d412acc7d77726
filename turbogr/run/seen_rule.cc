#include "turbogr/run/seen_rule.h"

#include <fmt/format.h>

#include <filesystem>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/repeats.h"
#include "turbogr/run/run_options.h"

namespace turbogr::run {

std::string resolve_seen(Config& config, const data::Store& store) {
  if (config.eval.seen != "auto") return "";
  const std::string stored = config.run.dir + "/config.toml";
  if (config.run.resume && std::filesystem::exists(stored)) {
    config.eval.seen = load_config(stored).eval.seen;
    if (config.eval.seen != "auto") return "";
  }
  const data::LoaderOptions options =
      eval_loader_options(config, store, data::Split::kTest, config.data.max_length);
  const data::RepeatCount repeats =
      data::repeated_targets(store, data::make_windows(store, options.windows));
  const bool many = repeats.share() > data::kManyRepeats;
  config.eval.seen = many ? "keep" : "drop";
  return fmt::format(
      "{:.1f} % of the test targets are items their user had met before: seen items {} "
      "(eval.seen = \"{}\")",
      100 * repeats.share(), many ? "stay candidates" : "leave the candidates", config.eval.seen);
}

std::string check_same_seen(const Config& was, const Config& is) {
  if (is.ranks()) return "";  // targets are judged, not found
  if (was.eval.seen == "auto") {
    return fmt::format(
        "this run began with a program that took seen items off the candidates but never the "
        "target; it is evaluated with eval.seen = \"{}\" from here on",
        is.eval.seen);
  }
  TGR_CHECK(was.eval.seen == is.eval.seen, "eval.seen is ", is.eval.seen, ", was ", was.eval.seen,
            "; a resumed run is evaluated as it was before: leave the key out, or start a new run");
  return "";
}

eval::SeenItems seen_for(const checkpoint::Checkpoint& checkpoint, const Config& config,
                         std::string_view given) {
  if (!given.empty()) return eval::seen_items_from_name(given);
  if (config.eval.seen != "auto") return eval::seen_items_from_name(config.eval.seen);
  log::warn(
      "'{}' is of an older program that stored no eval.seen: seen items are dropped, and a target "
      "met before is a miss (it once stayed in the ranking); --seen keep leaves them in",
      checkpoint.folder());
  return eval::SeenItems::kDrop;
}

}  // namespace turbogr::run
