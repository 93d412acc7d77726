#include "turbogr/model/ranking_options.h"

#include <cmath>

#include "turbogr/core/check.h"

namespace turbogr::model {

ModelOptions layer_options(const RankingOptions& o) {
  ModelOptions layers;
  layers.kind = o.kind;
  layers.layers = o.layers;
  layers.width = o.width;
  layers.heads = o.heads;
  layers.dq = o.dq;
  layers.dv = o.dv;
  layers.max_length = o.max_length;
  layers.norm_length = o.norm_length;
  layers.dropout = o.dropout;
  layers.norm_heads = o.norm_heads;
  if (o.kind == ModelKind::kFuxi) {
    layers.feed_forward = o.feed_forward;
    layers.bias = o.maps;
    layers.positions = o.prefix + o.max_history + 1;  // all targets stand at one place
    return layers;
  }
  layers.alpha = 1 / std::sqrt(static_cast<double>(o.dq));
  layers.bias = BiasKind::kNone;
  layers.silu_on_all = false;
  layers.affine_norms = true;
  layers.concat = true;
  layers.concat_input = true;
  layers.projection_bias = true;
  layers.output_bias = false;
  layers.xavier_projection = true;
  return layers;
}

PostKind post_kind_from_name(std::string_view name) {
  if (name == "time") return PostKind::kTime;
  if (name == "layer") return PostKind::kLayer;
  TGR_CHECK(name == "l2", "post-processor '", name, "'; it must be time, layer or l2");
  return PostKind::kL2;
}

void check_ranking_options(const RankingOptions& o) {
  check_model_options(layer_options(o));
  TGR_CHECK(o.embedding >= 1, "feature rows of width ", o.embedding, "; give at least 1");
  TGR_CHECK(o.prefix >= 0, o.prefix, " prefix features; give at least 0");
  TGR_CHECK(o.item_features >= 1, o.item_features,
            " item features; a ranking model needs at least the id");
  TGR_CHECK(o.actions >= 1 && o.actions <= 32, o.actions, " action bits; there can be 1 to 32");
  TGR_CHECK(o.max_history >= 0, "histories of up to ", o.max_history, " events; give at least 0");
  TGR_CHECK(o.tasks >= 1, o.tasks, " tasks; give at least 1");
  TGR_CHECK(o.hidden >= 1 && o.head_hidden >= 1, "MLPs of hidden widths ", o.hidden, " and ",
            o.head_hidden, "; both must be at least 1");
  TGR_CHECK(o.positions > o.prefix, "a position table of ", o.positions, " rows for ", o.prefix,
            " prefix tokens; the targets' place comes after those");
  TGR_CHECK(o.time_buckets >= 1, o.time_buckets, " time buckets; give at least 1");
  TGR_CHECK(o.input_dropout >= 0 && o.input_dropout < 1, "an input dropout of ", o.input_dropout,
            "; it must be at least 0 and below 1");
}

}  // namespace turbogr::model
