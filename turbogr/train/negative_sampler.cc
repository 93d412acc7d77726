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
constexpr std::array<const char*, 3> kPartNames = {"uniform", "popularity", "in-batch"};

std::array<std::int64_t, 3> mix_of(const NegativeOptions& options) {
  switch (options.kind) {
    case NegativeKind::kUniform:
      return {1, 0, 0};
    case NegativeKind::kPopularity:
      return {0, 1, 0};
    case NegativeKind::kInBatch:
      return {0, 0, 1};
    default:
      return options.mix;
  }
}

}  // namespace

NegativeKind negative_kind_from_name(std::string_view name) {
  if (name == "uniform") return NegativeKind::kUniform;
  if (name == "popularity") return NegativeKind::kPopularity;
  if (name == "in_batch") return NegativeKind::kInBatch;
  TGR_CHECK(name == "mixed", "unknown sampler of negatives '", name,
            "'; use uniform, popularity, in_batch or mixed");
  return NegativeKind::kMixed;
}

std::array<std::int64_t, 3> negative_parts(const NegativeOptions& options) {
  TGR_CHECK(options.count >= 1, options.count, " negatives; give at least 1");
  const std::array<std::int64_t, 3> mix = mix_of(options);
  constexpr std::int64_t kMost = 1 << 20;
  std::int64_t total = 0;
  for (const std::int64_t part : mix) {
    TGR_CHECK(part >= 0 && part <= kMost, "a part of ", part, " in the mix of negatives; use 0 to ",
              kMost);
    total += part;
  }
  TGR_CHECK(total > 0, "the mix of negatives is all 0; one part must be above 0");
  // Largest remainders get what whole numbers leave over; of equal ones the first.
  std::array<std::int64_t, 3> parts = {};
  std::array<std::int64_t, 3> remainder = {};
  std::int64_t left = options.count;
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i] = options.count * mix[i] / total;
    remainder[i] = options.count * mix[i] % total;
    left -= parts[i];
  }
  for (; left > 0; --left) {
    const auto most = static_cast<std::size_t>(
        std::max_element(remainder.begin(), remainder.end()) - remainder.begin());
    ++parts[most];
    remainder[most] = -1;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    TGR_CHECK(mix[i] == 0 || parts[i] > 0, "the mix [", mix[0], ", ", mix[1], ", ", mix[2],
              "] leaves ", kPartNames[i], " without a draw among ", options.count,
              " negatives; raise the count or that part");
  }
  return parts;
}

NegativeSampler::NegativeSampler(const NegativeOptions& options, std::int64_t catalogue,
                                 std::span<const std::int64_t> counts)
    : options_(options),
      catalogue_(catalogue),
      parts_(negative_parts(options)),
      in_batch_(parts_[2]) {
  TGR_CHECK(catalogue > 0, "negatives from a catalogue of ", catalogue,
            " items; it needs 1 or more");
  if (parts_[1] + parts_[2] == 0) return;
  TGR_CHECK(static_cast<std::int64_t>(counts.size()) == catalogue, "popularity of ", counts.size(),
            " items for a catalogue of ", catalogue, "; give each item's count");
  classify(counts);
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

void NegativeSampler::add_positives(View<const std::int64_t, 1> targets) {
  if (!needs_positives()) return;
  positives_.insert(positives_.end(), targets.data, targets.data + targets.shape[0]);
  num_positives_ += targets.shape[0];
}

void NegativeSampler::finish_positives() {
  if (!needs_positives()) return;
  std::sort(positives_.begin(), positives_.end());
  positives_.erase(std::unique(positives_.begin(), positives_.end()), positives_.end());
  const auto distinct = static_cast<std::int64_t>(positives_.size());
  in_batch_ = options_.shared ? std::min(parts_[2], distinct) : parts_[2];
  if (corrects()) refresh_corrections();
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
  const auto drawn = static_cast<double>(parts_[0] + parts_[1] + in_batch_);
  for (std::size_t c = 0; c < class_share_.size(); ++c) {
    double expected = static_cast<double>(parts_[0]) / items +
                      static_cast<double>(parts_[1]) * class_popularity_[c];
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
         (positives_.capacity() + choice_.capacity()) * sizeof(std::int64_t);
}

void draw_own_negatives(const Context& ctx, const NegativeKey& key, std::int64_t catalogue,
                        View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids) {
  ops::draw_negatives(ctx, {.catalogue = catalogue, .uniform = ids.shape[1]}, key, row_keys, ids);
}

void draw_shared_negatives(const NegativeKey& key, std::int64_t catalogue,
                           View<std::int64_t, 1> ids) {
  const Context ctx({.threads = 1});
  ops::draw_negatives(ctx, {.catalogue = catalogue, .uniform = ids.shape[0]}, key,
                      {&kSharedRow, {1}}, {ids.data, {1, ids.shape[0]}});
}

}  // namespace turbogr::train
