#include "turbogr/run/config_negatives.h"

#include <algorithm>

#include "turbogr/core/check.h"

namespace turbogr::run {

train::NegativeOptions negative_options(const NegativesConfig& n) {
  train::NegativeOptions options;
  options.kind = train::negative_kind_from_name(n.sampler);
  options.count = n.count;
  options.shared = n.set == "batch";
  options.alpha = n.alpha;
  TGR_CHECK(options.kind != train::NegativeKind::kMixed || n.mix.size() == 3,
            "negatives.sampler is \"mixed\" and negatives.mix does not say of what; give the parts "
            "of uniform, popularity and in_batch, such as [2, 1, 1]");
  if (!n.mix.empty()) std::copy_n(n.mix.begin(), 3, options.mix.begin());
  options.correction = n.correction;
  options.sharing = n.sharing == "logits"       ? ops::NegativeSharing::kLogits
                    : n.sharing == "embeddings" ? ops::NegativeSharing::kEmbeddings
                                                : ops::NegativeSharing::kNone;
  options.sharing_factor = n.sharing_factor;
  options.half = n.dtype == "f16";
  options.half_table = n.half_table;
  options.trained_only = !n.untrained;
  train::check_negatives(options);
  return options;
}

}  // namespace turbogr::run
