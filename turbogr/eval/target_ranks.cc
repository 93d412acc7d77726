#include "turbogr/eval/target_ranks.h"

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::eval {

template <class T>
TargetRanks<T>::TargetRanks(const Context& ctx, RowEncoder<T>& items)
    : rows_(items), items_(items.source()), group_(items_), vectors_(ctx, items) {}

template <class T>
const std::vector<std::int64_t>& TargetRanks<T>::compute(const Context& ctx,
                                                         const UserVectors<T>& users,
                                                         const std::vector<std::int64_t>& targets,
                                                         const Exclusions& own_excluded) {
  target_vectors_.gather(ctx, rows_, targets);
  // Everybody's queries, of which this rank scores its part of the items: rows there, or -1.
  const embedding::Sharding& sharding = items_.sharding(0);
  const auto own_row = [&](std::int64_t id) {
    return sharding.shard_of(id) == items_.shard_index() ? sharding.row_of(id) : -1;
  };
  group_.count(std::ssize(targets));
  const std::int64_t all = group_.all();
  ops::RetrievalInputs<T> inputs;
  inputs.query = group_.rows(ctx, users.rows(), all_rows_);
  inputs.query_inverse_norms = group_.values(ctx, users.inverse_norms(), all_norms_);
  inputs.target_rows = group_.rows(ctx, target_vectors_.rows(), all_target_rows_);
  inputs.target_inverse_norms =
      group_.values(ctx, target_vectors_.inverse_norms(), all_target_norms_);
  vectors_.add_to(inputs);
  std::vector<std::int64_t> all_targets = group_.ids(targets);
  for (std::int64_t& target : all_targets) target = own_row(target);
  IdLists excluded = group_.lists(own_excluded);
  excluded.map(own_row);

  counts_.assign(static_cast<std::size_t>(all), 0);
  if (all > 0 && inputs.num_items() > 0) {
    inputs.target = on_context(ctx, all_targets, target_);
    if (!excluded.offsets.empty()) {
      inputs.excluded = on_context(ctx, excluded.ids, excluded_);
      inputs.excluded_offsets = on_context(ctx, excluded.offsets, offsets_);
    }
    ctx.workspace().reserve(
        ops::top_k_workspace_bytes(ctx, all, inputs.query.cols, inputs.excluded.shape[0], 0));
    if (found_.size() < all) found_ = Tensor(DType::kI64, {all}, ctx.device());
    const View<std::int64_t, 1> out = model::first_values<std::int64_t>(found_, all);
    ops::rank_of_target<T>(ctx, inputs, out);
    copy_bytes(ctx, counts_.data(), out.data, counts_.size() * sizeof(counts_[0]));
    synchronize(ctx);
    for (std::int64_t& count : counts_) --count;
  }
  if (items_.group() != nullptr) items_.group()->all_reduce(counts_, dist::Reduce::kSum);
  const auto begin = counts_.begin() + group_.first();
  ranks_.assign(begin, begin + std::ssize(targets));
  for (std::int64_t& rank : ranks_) ++rank;
  return ranks_;
}

template class TargetRanks<float>;
template class TargetRanks<bf16>;

}  // namespace turbogr::eval
