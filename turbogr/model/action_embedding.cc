#include "turbogr/model/action_embedding.h"

#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/rows/action_rows.h"

namespace turbogr::model {

template <class T>
ActionEmbedding<T>::ActionEmbedding(const ModelOptions& options, std::int64_t capacity,
                                    ParameterSet<T>& parameters)
    : actions_(options.actions),
      table_(parameters.add({.name = "actions",
                             .shape = {options.actions, options.width},
                             .init = Init::kTruncatedNormal,
                             .scale = 0.02,
                             .counted = false})),
      rows_(dtype_of<T>(), {capacity, options.width}, parameters.device()),
      drows_(dtype_of<T>(), {capacity, options.width}, parameters.device()) {}

template <class T>
void ActionEmbedding<T>::check(const StepInput& step) const {
  TGR_CHECK(step.signals.shape[0] == step.num_tokens, "action embedding: ", step.signals.shape[0],
            " signals for ", step.num_tokens, " tokens; give one mask a token");
}

template <class T>
Rows<const T> ActionEmbedding<T>::forward(const Context& ctx, const ParameterSet<T>& parameters,
                                          const StepInput& step) {
  check(step);
  using A = Accum<T>;
  const View<const A, 2> table = parameters.value(table_).template view<A, 2>();
  const Rows<T> rows = first_rows<T>(rows_, step.num_tokens);
  ops::action_rows<T>(ctx, table, step.signals, rows);
  return rows;
}

template <class T>
Rows<T> ActionEmbedding<T>::gradient_rows(std::int64_t tokens) {
  return first_rows<T>(drows_, tokens);
}

template <class T>
void ActionEmbedding<T>::backward(const Context& ctx, ParameterSet<T>& parameters,
                                  const StepInput& step) {
  check(step);
  using A = Accum<T>;
  const View<A, 2> dtable = parameters.gradient(table_).template view<A, 2>();
  const Rows<const T> drows = first_rows<T>(std::as_const(drows_), step.num_tokens);
  ops::action_rows_backward<T>(ctx, drows, step.signals, dtable);
}

template <class T>
std::size_t ActionEmbedding<T>::workspace_bytes(const Context& ctx) const {
  return ops::action_rows_workspace_bytes<T>(ctx, rows_.shape()[0], actions_, rows_.shape()[1]);
}

template class ActionEmbedding<double>;
template class ActionEmbedding<float>;
template class ActionEmbedding<bf16>;

}  // namespace turbogr::model
