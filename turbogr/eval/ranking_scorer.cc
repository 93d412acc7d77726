#include "turbogr/eval/ranking_scorer.h"

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"

namespace turbogr::eval {

using model::first_rows;

template <class T>
RankingScorer<T>::RankingScorer(const Context& ctx, model::RankingModel<T>& model,
                                embedding::RowSource<T>& rows, const RankingScoring& options)
    : model_(model),
      rows_(rows),
      norm_by_batch_(options.norm_by_batch),
      feature_rows_(ctx, options.features, options.memory.layers.sequences,
                    options.memory.layers.capacity),
      inputs_(ctx, model.options(), options.memory, model::size_of(options.memory)) {
  const std::int64_t width = model.options().embedding;
  const Device device = ctx.device();
  table_rows_ = Tensor(dtype_of<T>(), {feature_rows_.most_rows(), width}, device);
  slots_ = Tensor(dtype_of<T>(), {feature_rows_.most_slots(), width}, device);
  logits_ = Tensor(dtype_of<T>(), {options.memory.targets, model.options().tasks},
                   device == Device::kCuda ? Device::kPinned : device);
  ctx.workspace().reserve(feature_rows_.workspace_bytes(ctx, width));
}

template <class T>
Rows<const T> RankingScorer<T>::score(const Context& ctx, const model::RankingBatch& batch) {
  feature_rows_.read(ctx, batch);
  const Rows<T> rows = first_rows<T>(table_rows_, feature_rows_.num_rows());
  for (std::size_t t = 0; t < feature_rows_.num_tables(); ++t) {
    const View<const std::int64_t, 1> ids = feature_rows_.ids(t);
    rows_.gather(ctx, t, ids,
                 {rows.row(feature_rows_.first_row(t)), ids.shape[0], rows.cols, rows.cols});
  }
  const Rows<T> slots = first_rows<T>(slots_, feature_rows_.num_slots());
  feature_rows_.pool<T>(ctx, rows, slots);
  const Rows<T> logits = first_rows<T>(logits_, batch.num_targets());
  for (const model::RankingPart& part : inputs_.send(ctx, batch)) {
    model::RankingStep step = part.step;
    if (norm_by_batch_) step.norm_length = model::batch_norm_length(batch.sequences);
    const Rows<const T> made =
        model_.forward(ctx, step, model::rows_of(part, feature_rows_.split<const T>(slots)));
    copy_bytes(ctx, logits.row(part.first_target), made.data,
               static_cast<std::size_t>(made.rows * made.cols) * sizeof(T));
  }
  synchronize(ctx);
  return logits;
}

template <class T>
PlannedBytes RankingScorer<T>::bytes() const {
  PlannedBytes bytes = feature_rows_.bytes();
  bytes += inputs_.bytes();
  for (const Tensor* tensor : {&table_rows_, &slots_, &logits_}) bytes.add(*tensor);
  return bytes;
}

template class RankingScorer<float>;
template class RankingScorer<bf16>;

}  // namespace turbogr::eval
