#include "turbogr/train/retrieval_trainer.h"

#include <utility>

#include "turbogr/train/dense_tensors.h"

namespace turbogr::train {

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, const RetrievalOptions& options,
                                      std::int64_t num_items, std::span<const std::int64_t> counts)
    : RetrievalTrainer(ctx, dist::make_self(), nullptr, options, num_items, counts) {}

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, dist::Communicator& world,
                                      const RetrievalOptions& options, std::int64_t num_items,
                                      std::span<const std::int64_t> counts)
    : RetrievalTrainer(ctx, nullptr, &world, options, num_items, counts) {}

template <class T>
RetrievalTrainer<T>::RetrievalTrainer(const Context& ctx, std::unique_ptr<dist::Communicator> alone,
                                      dist::Communicator* world, const RetrievalOptions& options,
                                      std::int64_t num_items, std::span<const std::int64_t> counts)
    : alone_(std::move(alone)),
      world_(world == nullptr ? *alone_ : *world),
      next_ctx_(next_step_context(ctx)),
      step_(ctx, next_ctx_, world_, options, num_items, counts),
      steps_(ctx, next_ctx_, world_, step_, options.ranks, options.clip != 0) {}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::model_tensors() {
  return weight_tensors(model().parameters());
}

template <class T>
std::vector<NamedTensor> RetrievalTrainer<T>::optimiser_tensors() {
  std::vector<NamedTensor> tensors =
      moment_tensors(model().parameters(), step_.first_moments(), step_.second_moments());
  if (Tensor* scales = model().fp8_scales()) tensors.push_back(named("fp8_scales", *scales));
  return tensors;
}

template <class T>
PlannedBytes RetrievalTrainer<T>::planned_bytes(const Context& ctx) const {
  PlannedBytes bytes = step_.bytes(ctx);
  bytes += step_bytes();
  return bytes;
}

template class RetrievalTrainer<float>;
template class RetrievalTrainer<bf16>;

}  // namespace turbogr::train
