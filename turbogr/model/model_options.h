// What a model is: sizes and variants. Everything else in this folder follows from these.
//
// N tokens, D width, H heads, dq and dv the widths of a query and a value head, F the feed-forward
// width.
#pragma once

#include <cstdint>
#include <string_view>

namespace turbogr::model {

enum class ModelKind : std::uint8_t { kHstu, kFuxi };
enum class BiasKind : std::uint8_t { kNone, kPosition, kTime, kBoth };

ModelKind model_kind_from_name(std::string_view name);  // hstu, fuxi
BiasKind bias_kind_from_name(std::string_view name);    // none, position, time, both

struct ModelOptions {
  ModelKind kind = ModelKind::kHstu;
  std::int64_t layers = 2;
  std::int64_t width = 64;  // D
  int heads = 1;            // H
  std::int64_t dq = 64;
  std::int64_t dv = 64;
  std::int64_t feed_forward = 64;  // F, FuXi only
  std::int64_t max_length = 200;   // S
  std::int64_t positions = 0;      // that the position table serves; 0: max_length
  double norm_length = 211;        // what attention is divided by
  double alpha = 1;                // scale of q . k
  double dropout = 0;
  BiasKind bias = BiasKind::kBoth;
  bool silu_on_all = true;  // else on U only
  bool affine_norms = false;
  bool concat = false;        // [U, a, U * a] before the output projection, a normed; HSTU only
  bool concat_input = false;  // with concat: the a in the middle as attention made it
  // HSTU: the norm of what attention made goes head by head, not over all of them. The mixed rows
  // are then those of the heads, one after the other: [U, a, U * a] of the first, of the second,
  // ...
  bool norm_heads = false;
  bool projection_bias = false;    // of [U | V | Q | K]
  bool output_bias = true;         // of the output projection
  bool xavier_projection = false;  // how it starts: Xavier's uniform, else normal(0.02)
  std::int64_t actions = 0;        // action signals added to the input, at most 32; 0: none
  std::int64_t window = 0;         // 0: all of the history

  bool position_bias() const { return bias == BiasKind::kPosition || bias == BiasKind::kBoth; }
  std::int64_t position_length() const { return positions > 0 ? positions : max_length; }
  bool time_bias() const { return bias == BiasKind::kTime || bias == BiasKind::kBoth; }
  std::int64_t query_width() const { return heads * dq; }
  std::int64_t value_width() const { return heads * dv; }
  // Columns of U and of the attention's output: three maps side by side in FuXi.
  std::int64_t gate_width() const { return (kind == ModelKind::kFuxi ? 3 : 1) * value_width(); }
  // [U | V | Q | K]
  std::int64_t projection_width() const { return gate_width() + value_width() + 2 * query_width(); }
  int norm_groups() const { return norm_heads ? heads : 1; }
  // Rows of the output projection.
  std::int64_t mixed_width() const { return (concat ? 3 : 1) * gate_width(); }
};

// Throws when the sizes do not make a model.
void check_model_options(const ModelOptions& options);

}  // namespace turbogr::model
