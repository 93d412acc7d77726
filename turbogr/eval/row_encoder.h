// Rows as the retrieval task compares them, outside of training: of items as candidates, and of the
// tokens of a batch as the model reads them. Without features both are the items' rows.
//
//   RowEncoder<float> rows(ctx, source, features, capacity);
//   rows.items(ctx, ids, out);
//   rows.tokens(ctx, batch, out);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/data/batch.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/eval/retrieval_features.h"
#include "turbogr/model/feature_rows.h"

namespace turbogr::eval {

template <class T>
class RowEncoder {
 public:
  // For batches of up to `capacity` tokens, those before histories included. Both outlive it.
  RowEncoder(const Context& ctx, embedding::RowSource<T>& source, const RetrievalFeatures& features,
             std::int64_t capacity);

  embedding::RowSource<T>& source() const { return source_; }
  const RetrievalFeatures& features() const { return features_; }
  std::int64_t width() const { return width_; }

  // out(i) = the candidate ids(i), which may repeat. Collective over the ranks that share the
  // tables; some may ask for nothing.
  void items(const Context& ctx, View<const std::int64_t, 1> ids, Rows<T> out);
  // A row a token: every sequence begins with those of features.prefix. Collective, too.
  void tokens(const Context& ctx, const data::Batch& batch, Rows<T> out);

 private:
  // One list of things to encode: their features and the rows of those.
  struct Encoding {
    FeatureInputs inputs;
    model::FeatureRows rows;
    Tensor fetched, slots;

    Encoding(const Context& ctx, const RetrievalFeatures& features, const FeatureSize& size,
             std::int64_t width);
  };
  Rows<T> pooled(const Context& ctx, Encoding& encoding);

  embedding::RowSource<T>& source_;
  const RetrievalFeatures& features_;
  std::int64_t width_, items_at_once_ = 0;
  std::optional<Encoding> items_, tokens_;  // where there are features
  Feed feed_;
};

}  // namespace turbogr::eval
