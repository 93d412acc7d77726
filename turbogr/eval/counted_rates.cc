#include "turbogr/eval/counted_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::eval {
namespace {

constexpr double kItemPrior = 20, kUserPrior = 5, kValuePrior = 20;

double log_odds(double rate) {
  const double inside = std::clamp(rate, 1e-12, 1 - 1e-12);
  return std::log(inside / (1 - inside));
}

double probability_of(double logit) { return 1 / (1 + std::exp(-logit)); }

}  // namespace

CountedRates::CountedRates(const data::Store& store, const data::Samples& training,
                           const data::SampleLayout& layout)
    : store_(store), layout_(layout), all_(layout.tasks.size()) {
  add_factor("item", kItemPrior);
  add_factor("user", kUserPrior);
  for (const std::vector<data::SampleFeature>* features : {&layout.prefix, &layout.items}) {
    for (const data::SampleFeature& feature : *features) {
      for (const data::FeatureSource& key : feature.keys) {
        if (key.of_event() && !key.is_bag() && !key.is_number()) add_factor(key.text, kValuePrior);
      }
    }
  }
  const std::size_t tasks = layout.tasks.size();
  for_targets(training, [&](const Target& target) {
    for (std::size_t k = 0; k < tasks; ++k) {
      const auto [is_positive, weight] = label_of(target, k);
      const double positive = is_positive ? weight : 0;
      all_[k].positives += positive;
      all_[k].events += weight;
      for (Factor& factor : factors_) {
        const auto code = static_cast<std::size_t>(code_of(factor, target));
        Count& count = factor.counts[code * tasks + k];
        count.positives += positive;
        count.events += weight;
      }
    }
  });
}

CountedRates::Labelled CountedRates::label_of(const Target& target, std::size_t task) const {
  const data::SampleTask& asked = layout_.tasks[task];
  return {(target.signals & asked.signals) != 0, asked.weight.of(target.event, target.signals)};
}

void CountedRates::add_factor(std::string_view source, double prior) {
  const bool known = std::any_of(factors_.begin(), factors_.end(),
                                 [&](const Factor& each) { return each.source.text == source; });
  if (known) return;
  Factor factor = {.name = std::string(source.substr(source.rfind('.') + 1)),
                   .source = data::parse_source(store_, std::string(source)),
                   .prior = prior,
                   .counts = {}};
  factor.counts.resize(static_cast<std::size_t>(factor.source.codes + 1) * layout_.tasks.size());
  factors_.push_back(std::move(factor));
}

std::int64_t CountedRates::code_of(const Factor& factor, const Target& target) {
  switch (factor.source.kind) {
    case data::FeatureSource::Kind::kUser:
      return target.user + 1;
    case data::FeatureSource::Kind::kItem:
      return target.item + 1;
    default:
      return factor.source.column.code(target.event);
  }
}

double CountedRates::added_log_odds(const Factor& factor, std::int64_t code,
                                    std::size_t task) const {
  const Count& all = all_[task];
  const double mean = all.positives / std::max(1.0, all.events);
  const Count& count = factor.counts[static_cast<std::size_t>(code) * all_.size() + task];
  const double rate = (count.positives + factor.prior * mean) / (count.events + factor.prior);
  return log_odds(rate) - log_odds(mean);
}

ClickMetrics CountedRates::judge(const data::Samples& samples, std::size_t task, CountedBy by,
                                 GroupBy groups) const {
  TGR_CHECK(!layout_.tasks[task].is_number(), "task '", layout_.tasks[task].name,
            "' predicts a number, and counting gives shares of signals");
  const std::size_t used = by == CountedBy::kItem ? 1 : factors_.size();
  const double mean = log_odds(all_[task].positives / std::max(1.0, all_[task].events));
  ClickMetrics metrics;
  for_targets(samples, [&](const Target& target) {
    const auto [positive, weight] = label_of(target, task);
    double logit = mean;
    for (std::size_t f = 0; f < used; ++f) {
      logit += added_log_odds(factors_[f], code_of(factors_[f], target), task);
    }
    metrics.add({.probability = probability_of(logit),
                 .positive = positive,
                 .weight = weight,
                 .group = groups == GroupBy::kUser ? target.user : target.sample});
  });
  return metrics;
}

std::vector<std::string> CountedRates::names() const {
  std::vector<std::string> names;
  names.reserve(factors_.size());
  for (const Factor& factor : factors_) names.push_back(factor.name);
  return names;
}

template <class Body>
void CountedRates::for_targets(const data::Samples& samples, const Body& body) const {
  std::vector<std::uint32_t> signals;
  std::vector<std::int64_t> items;
  for (std::size_t s = 0; s < samples.windows.size(); ++s) {
    const data::Window& window = samples.windows[s];
    signals.resize(static_cast<std::size_t>(samples.num_targets[s]));
    items.resize(signals.size());
    store_.read_signals(window.first_event, signals);
    store_.read_items(window.first_event, items);
    for (std::size_t i = 0; i < signals.size(); ++i) {
      body(Target{static_cast<std::int64_t>(s), window.user, items[i],
                  window.first_event + static_cast<std::int64_t>(i), signals[i]});
    }
  }
}

}  // namespace turbogr::eval
