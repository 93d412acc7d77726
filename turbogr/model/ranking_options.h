// What a ranking model is: sizes and variants.
//
// E the width of a feature's row, c prefix features, F item features (the id first), A action bits,
// K tasks, D the layers' width.
#pragma once

#include <cstdint>
#include <string_view>

#include "turbogr/model/model_options.h"
#include "turbogr/ops/rows/event_sequences.h"

namespace turbogr::model {

// What becomes of the layers' result at targets (post_processor.h).
enum class PostKind : std::uint8_t { kTime, kLayer, kL2 };
PostKind post_kind_from_name(std::string_view name);  // time, layer, l2

struct RankingOptions {
  std::int64_t embedding = 64;     // E
  std::int64_t prefix = 1;         // c
  std::int64_t item_features = 1;  // F
  std::int64_t actions = 1;        // A, 1 to 32
  double action_scale = 0.1;       // standard deviation of the action tables' start
  std::int64_t tasks = 1;          // K
  ModelKind kind = ModelKind::kHstu;
  std::int64_t layers = 3;
  std::int64_t width = 64;  // D
  int heads = 1;
  std::int64_t dq = 64;
  std::int64_t dv = 64;
  std::int64_t feed_forward = 64;    // FuXi's
  BiasKind maps = BiasKind::kBoth;   // FuXi's beside the latent one
  std::int64_t hidden = 256;         // of the MLPs that make tokens
  std::int64_t head_hidden = 512;    // of the item tower and the head
  std::int64_t positions = 8192;     // P
  std::int64_t time_buckets = 2048;  // T; the table has one row more
  ops::TimeBuckets buckets = ops::TimeBuckets::kSquareRoot;
  PostKind post = PostKind::kTime;
  std::int64_t max_length = 4096;   // the longest sequence, all of it
  std::int64_t max_history = 4096;  // of events; FuXi's position map knows no longer one
  double norm_length = 4096;        // what attention is divided by, unless a step says otherwise
  bool full_prefix = false;         // prefix tokens see all of the prefix and the history, not
                                    // only what is before them
  bool norm_heads = false;          // HSTU: the norm after attention goes head by head
  bool bases = false;               // logits start from numbers that come with the targets
  double input_dropout = 0.2;
  double dropout = 0.1;  // of each layer

  static constexpr std::int64_t kActionWidth = 8;
  std::int64_t action_width() const { return actions * kActionWidth; }
};

// Of the layers. HSTU's: affine norms, SiLU on the gate alone, [U | a | U * norm(a)], a bias at the
// projection and none at the output, no tables in the attention. FuXi's are those of retrieval.
ModelOptions layer_options(const RankingOptions& options);

// Throws when the sizes do not make a model.
void check_ranking_options(const RankingOptions& options);

}  // namespace turbogr::model
