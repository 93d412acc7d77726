#include "turbogr/train/negative_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::train {
namespace {

constexpr std::uint64_t kSharedRow = ~std::uint64_t{0};
}  // namespace

NegativeSampler::NegativeSampler(const NegativeOptions& options, std::int64_t catalogue,
                                 std::span<const std::int64_t> counts)
    : options_((check_negatives(options), options)),
      catalogue_(catalogue),
      parts_(negative_parts(options)),
      in_batch_(parts_[2]) {
  TGR_CHECK(catalogue > 0, "negatives from a catalogue of ", catalogue,
            " items; it needs 1 or more");
  const bool known = options.trained_only && parts_[0] > 0;
  if (parts_[1] + parts_[2] == 0 && !known) return;
  TGR_CHECK(static_cast<std::int64_t>(counts.size()) == catalogue, "popularity of ", counts.size(),
            " items for a catalogue of ", catalogue, "; give each item's count");
  for (std::int64_t item = 0; item < catalogue && known; ++item) {
    if (counts[static_cast<std::size_t>(item)] > 0) known_.push_back(item);
  }
  TGR_CHECK(!known || !known_.empty(),
            "no item of the catalogue was ever a target; there is nothing to draw negatives from");
  if (parts_[1] + parts_[2] > 0) classify(counts);
}

void NegativeSampler::classify(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> distinct(counts.begin(), counts.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  TGR_CHECK(distinct.front() >= 0, "an item was counted ", distinct.front(),
            " times; counts start at 0");
  class_size_.resize(distinct.size());
  class_of_.reserve(counts.size());
  double total = 0;
  for (const std::int64_t count : counts) {
    const auto at = std::lower_bound(distinct.begin(), distinct.end(), count) - distinct.begin();
    class_of_.push_back(static_cast<std::int32_t>(at));
    ++class_size_[static_cast<std::size_t>(at)];
    total += static_cast<double>(count);
  }
  TGR_CHECK(total > 0, "no item of the catalogue was ever a target; popularity means nothing here");
  double weights = 0;
  for (std::size_t c = 0; c < distinct.size(); ++c) {
    const auto count = static_cast<double>(distinct[c]);
    class_share_.push_back(count / total);
    class_popularity_.push_back(std::pow(count, options_.alpha));  // 0^0 is 1: alpha 0 is uniform
    weights += class_popularity_.back() * static_cast<double>(class_size_[c]);
  }
  TGR_CHECK(std::isfinite(weights), "popularity to the power of alpha = ", options_.alpha,
            " does not fit a number; use a smaller alpha");
  if (parts_[1] > 0) {
    std::vector<double> item_weights;
    item_weights.reserve(counts.size());
    for (const std::int32_t c : class_of_) {
      item_weights.push_back(class_popularity_[static_cast<std::size_t>(c)]);
    }
    alias_ = ops::make_alias_table(item_weights);
  }
  for (double& popularity : class_popularity_) popularity /= weights;
  if (options_.correction) {
    class_correction_.resize(distinct.size());
    if (!needs_positives()) refresh_corrections();
  }
}

void NegativeSampler::begin_step(const ops::NegativeKey& key) {
  key_ = key;
  positives_.clear();
  num_positives_ = 0;
}

void NegativeSampler::add_positives(View<const std::int64_t, 1> distinct, std::int64_t count) {
  if (!needs_positives()) return;
  positives_.insert(positives_.end(), distinct.data, distinct.data + distinct.shape[0]);
  num_positives_ += count;
}

void NegativeSampler::finish_positives() {
  if (!needs_positives()) return;
  std::sort(positives_.begin(), positives_.end());
  positives_.erase(std::unique(positives_.begin(), positives_.end()), positives_.end());
  const auto distinct = static_cast<std::int64_t>(positives_.size());
  in_batch_ = options_.shared ? std::min(parts_[2], distinct) : parts_[2];
  if (corrects()) refresh_corrections();
}

void NegativeSampler::reserve_positives(std::int64_t count) {
  if (!needs_positives()) return;
  positives_.reserve(static_cast<std::size_t>(count));
  if (options_.shared) choice_.reserve(static_cast<std::size_t>(count));
}

void NegativeSampler::refresh_corrections() {
  // 1 - (1 - p)^N without losing the digits of a small p.
  const auto inclusion = [&](double share) {
    return share >= 1 ? 1.0 : -std::expm1(static_cast<double>(num_positives_) * std::log1p(-share));
  };
  double inclusions = 0;  // the expected number of distinct positives
  if (needs_positives()) {
    for (std::size_t c = 0; c < class_share_.size(); ++c) {
      inclusions += inclusion(class_share_[c]) * static_cast<double>(class_size_[c]);
    }
  }
  const auto items = static_cast<double>(catalogue_);
  const auto uniform_items = known_.empty() ? items : static_cast<double>(known_.size());
  const auto drawn = static_cast<double>(parts_[0] + parts_[1] + in_batch_);
  for (std::size_t c = 0; c < class_share_.size(); ++c) {
    double expected =
        class_share_[c] > 0 || known_.empty() ? static_cast<double>(parts_[0]) / uniform_items : 0;
    expected += static_cast<double>(parts_[1]) * class_popularity_[c];
    if (inclusions > 0) {
      expected += static_cast<double>(in_batch_) * inclusion(class_share_[c]) / inclusions;
    }
    // What is never drawn needs no correction, only a number.
    class_correction_[c] = expected > 0 ? std::log(items * expected / drawn) : 0.0;
  }
}

ops::NegativeSource NegativeSampler::source(std::int64_t in_batch) const {
  return {.catalogue = catalogue_,
          .alias = {alias_.data(), {static_cast<std::int64_t>(alias_.size())}},
          .candidates = {positives_.data(), {static_cast<std::int64_t>(positives_.size())}},
          .known = {known_.data(), {static_cast<std::int64_t>(known_.size())}},
          .uniform = parts_[0],
          .popular = parts_[1],
          .in_batch = in_batch};
}

void NegativeSampler::draw_own(const Context& ctx, View<const std::uint64_t, 1> row_keys,
                               View<std::int64_t, 2> ids) const {
  ops::draw_negatives(ctx, source(parts_[2]), key_, row_keys, ids);
}

std::int64_t NegativeSampler::draw_shared(const Context& ctx, std::int64_t part,
                                          View<std::int64_t, 1> ids) {
  TGR_CHECK(ids.shape[0] == options_.count, "room for ", ids.shape[0], " shared negatives of ",
            options_.count);
  TGR_CHECK(options_.shared, "a shared set from a sampler of sets a token; set shared = true");
  const std::uint64_t row_key = kSharedRow - static_cast<std::uint64_t>(part);
  const std::int64_t from_all = parts_[0] + parts_[1];
  ops::draw_negatives(ctx, source(0), key_, {&row_key, {1}}, {ids.data, {1, from_all}});
  if (!needs_positives()) return from_all;

  // The first in_batch_ of a shuffle of the positives.
  choice_.assign(positives_.begin(), positives_.end());
  for (std::int64_t j = 0; j < in_batch_; ++j) {
    const std::int64_t r = from_all + j;
    const std::uint64_t bits = ops::negative_bits(key_, row_key, r / 2).bits[r % 2];
    const auto others = static_cast<std::uint64_t>(choice_.size()) - static_cast<std::uint64_t>(j);
    const auto at = static_cast<std::size_t>(j);
    std::swap(choice_[at], choice_[at + uniform_below(bits, others)]);
    ids(r) = choice_[at];
  }
  return from_all + in_batch_;
}

bool NegativeSampler::draws_all(std::int64_t draws) const {
  // An item is missed with a chance below e^-64, any of two billion with one below 10^-18.
  constexpr std::int64_t kDrawsOfEach = 64;
  return !options_.shared && parts_[1] + parts_[2] == 0 && draws / kDrawsOfEach >= num_candidates();
}

double NegativeSampler::correction(std::int64_t id) const {
  if (!corrects()) return 0;
  return class_correction_[static_cast<std::size_t>(class_of_[static_cast<std::size_t>(id)])];
}

void NegativeSampler::corrections(const Context& ctx, View<const std::int64_t, 1> ids,
                                  View<float, 1> out) const {
  parallel_ranges(ctx.pool(), ids.shape[0], 1 << 14,
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      out(i) = static_cast<float>(correction(ids(i)));
                    }
                  });
}

std::size_t NegativeSampler::bytes() const {
  return alias_.size() * sizeof(ops::AliasSlot) + class_of_.size() * sizeof(std::int32_t) +
         (positives_.capacity() + choice_.capacity() + known_.capacity()) * sizeof(std::int64_t);
}

}  // namespace turbogr::train
