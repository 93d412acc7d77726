#include "turbogr/train/negative_options.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::train {
namespace {

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

void check_negatives(const NegativeOptions& options) {
  using ops::NegativeSharing;
  const auto use = [&](std::size_t part) { return mix_of(options)[part] > 0; };
  const NegativeOptions defaults;
  TGR_CHECK(options.kind == NegativeKind::kMixed || options.mix == defaults.mix,
            "negatives.mix is the recipe of sampler = \"mixed\" and another sampler is set; leave "
            "it out, or mix");
  const std::array<std::int64_t, 3> parts = negative_parts(options);
  TGR_CHECK(options.kind != NegativeKind::kMixed || std::count(parts.begin(), parts.end(), 0) < 2,
            "negatives.mix = [", options.mix[0], ", ", options.mix[1], ", ", options.mix[2],
            "] has a single part; name that sampler instead of \"mixed\"");
  TGR_CHECK(use(1) || options.alpha == defaults.alpha, "negatives.alpha = ", options.alpha,
            " shapes draws by popularity, of which there are none; leave it out, or use sampler = "
            "\"popularity\" or a mix with it");
  TGR_CHECK(
      !options.trained_only || use(0),
      "negatives.untrained = false shapes uniform draws, of which there are none; leave it out, "
      "or use sampler = \"uniform\" or a mix with it");
  TGR_CHECK(options.correction || use(1) || use(2),
            "negatives.correction = false switches off what uniform negatives do not have; leave "
            "it out");
  const bool shares = options.sharing != NegativeSharing::kNone;
  TGR_CHECK(!shares || !options.shared,
            "negatives.sharing lends one token's negatives to others, and with set = \"batch\" all "
            "tokens have the same; use set = \"token\", or sharing = \"none\"");
  TGR_CHECK(!shares || options.sharing_factor >= 2,
            "negatives.sharing with sharing_factor = ", options.sharing_factor,
            " shares with nobody; set a factor of 2 or more, or sharing = "
            "\"none\"");
  TGR_CHECK(shares || options.sharing_factor == 1,
            "negatives.sharing_factor = ", options.sharing_factor,
            " without sharing; set negatives.sharing to \"logits\" or \"embeddings\"");
  TGR_CHECK(options.half || !options.half_table,
            "negatives.half_table keeps the f16 rows that dtype = \"full\" never reads; set "
            "negatives.dtype = \"f16\", or leave it out");
}

}  // namespace turbogr::train
