#include "turbogr/model/model_options.h"

#include "turbogr/core/check.h"

namespace turbogr::model {

ModelKind model_kind_from_name(std::string_view name) {
  if (name == "hstu") return ModelKind::kHstu;
  TGR_CHECK(name == "fuxi", "unknown model '", name, "'; use hstu or fuxi");
  return ModelKind::kFuxi;
}

BiasKind bias_kind_from_name(std::string_view name) {
  if (name == "none") return BiasKind::kNone;
  if (name == "position") return BiasKind::kPosition;
  if (name == "time") return BiasKind::kTime;
  TGR_CHECK(name == "both", "unknown bias '", name, "'; use none, position, time or both");
  return BiasKind::kBoth;
}

void check_model_options(const ModelOptions& o) {
  TGR_CHECK(o.layers >= 1, "a model of ", o.layers, " layers; give at least 1");
  TGR_CHECK(o.width >= 1, "a model of width ", o.width, "; give at least 1");
  TGR_CHECK(o.heads >= 1, "attention with ", o.heads, " heads; give at least 1");
  TGR_CHECK(o.dq >= 1 && o.dq <= 256 && o.dv >= 1 && o.dv <= 256, "heads of width ", o.dq,
            " (query) and ", o.dv,
            " (value); both must be 1 to 256: set model.dq and model.dv, or more model.heads");
  TGR_CHECK(o.kind != ModelKind::kFuxi || o.feed_forward >= 1, "a feed-forward width of ",
            o.feed_forward, "; give at least 1");
  TGR_CHECK(o.max_length >= 1, "a max_length of ", o.max_length, "; give at least 1");
  TGR_CHECK(o.norm_length > 0, "a norm_length of ", o.norm_length, "; it must be above 0");
  TGR_CHECK(o.dropout >= 0 && o.dropout < 1, "a dropout of ", o.dropout,
            "; it must be at least 0 and below 1");
  TGR_CHECK(o.actions >= 0 && o.actions <= 32, o.actions,
            " action signals in the input; there can be up to 32");
  TGR_CHECK(o.window >= 0, "an attention window of ", o.window, "; use 0 for none");
  TGR_CHECK(!(o.concat && o.kind == ModelKind::kFuxi),
            "concat is a variant of HSTU's output; FuXi has none: leave it out");
  TGR_CHECK(!(o.norm_heads && o.kind == ModelKind::kFuxi),
            "norm_heads is a variant of HSTU's norm after attention; FuXi has none: leave it out");
  TGR_CHECK(o.concat || !o.concat_input,
            "concat_input says what concat puts in the middle; set concat too");
}

}  // namespace turbogr::model
