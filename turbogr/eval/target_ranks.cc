#include "turbogr/eval/target_ranks.h"

#include <algorithm>
#include <numeric>

#include "turbogr/core/device_memory.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/rows/top_k.h"

namespace turbogr::train {
namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::size_t bytes) {
  for (std::int64_t& count : counts) count *= static_cast<std::int64_t>(bytes);
  return counts;
}

// Lists of all ranks, end to end.
std::vector<std::int64_t> join(dist::Communicator& group, const std::vector<std::int64_t>& own) {
  const std::vector<std::int64_t> counts = group.all_gather_value(std::ssize(own));
  std::vector<std::int64_t> all(static_cast<std::size_t>(sum_of(counts)));
  group.all_gather(own.data(), {all.data(), times(counts, sizeof(std::int64_t))});
  return all;
}

}  // namespace

template <class T>
TargetRanks<T>::TargetRanks(const Context& ctx, embedding::RowSource<T>& items)
    : items_(items), vectors_(ctx, items.shard(0)) {}

template <class T>
typename TargetRanks<T>::Queries TargetRanks<T>::gather(const Context& ctx,
                                                        const UserVectors<T>& users,
                                                        const std::vector<std::int64_t>& targets,
                                                        const Exclusions& excluded) {
  target_vectors_.gather(ctx, items_, targets);
  Queries queries = {users.rows(),
                     target_vectors_.rows(),
                     users.inverse_norms(),
                     target_vectors_.inverse_norms(),
                     targets,
                     {},
                     {}};
  if (excluded.ids != nullptr) {
    queries.excluded = *excluded.ids;
    queries.offsets = *excluded.offsets;
  }
  users_of_ = {std::ssize(targets)};
  dist::Communicator* const group = items_.group();
  if (group == nullptr) return queries;

  users_of_ = group->all_gather_value(std::ssize(targets));
  const std::int64_t all = sum_of(users_of_);
  const std::int64_t width = queries.rows.cols;
  const auto join_rows = [&](Rows<const T> own, Tensor& memory) {
    if (memory.size() < all * width) memory = Tensor(dtype_of<T>(), {all, width}, ctx.device());
    const auto row = static_cast<std::size_t>(width) * sizeof(T);
    items_.device_group()->all_gather(own.data, {memory.data(), times(users_of_, row)});
    return Rows<const T>(reinterpret_cast<const T*>(memory.data()), all, width, width);
  };
  const auto join_values = [&](View<const float, 1> own, Tensor& memory) {
    if (memory.size() < all) memory = Tensor(DType::kF32, {all}, ctx.device());
    items_.device_group()->all_gather(own.data, {memory.data(), times(users_of_, sizeof(float))});
    return View<const float, 1>{reinterpret_cast<const float*>(memory.data()), {all}};
  };
  queries.rows = join_rows(queries.rows, all_rows_);
  queries.target_rows = join_rows(queries.target_rows, all_target_rows_);
  queries.inverse_norms = join_values(queries.inverse_norms, all_norms_);
  queries.target_inverse_norms = join_values(queries.target_inverse_norms, all_target_norms_);
  queries.targets = join(*group, targets);
  if (excluded.ids != nullptr) {
    std::vector<std::int64_t> sizes;
    for (std::size_t b = 0; b + 1 < queries.offsets.size(); ++b) {
      sizes.push_back(queries.offsets[b + 1] - queries.offsets[b]);
    }
    sizes = join(*group, sizes);
    queries.offsets.assign(1, 0);
    for (const std::int64_t size : sizes) queries.offsets.push_back(queries.offsets.back() + size);
    queries.excluded = join(*group, queries.excluded);
  }
  return queries;
}

// Ids become rows of this rank's part; what is elsewhere is left out, or -1.
template <class T>
void TargetRanks<T>::keep_own(Queries& queries) const {
  const embedding::Sharding& sharding = items_.sharding(0);
  const auto own_row = [&](std::int64_t id) {
    return sharding.shard_of(id) == items_.shard_index() ? sharding.row_of(id) : -1;
  };
  for (std::int64_t& target : queries.targets) target = own_row(target);
  std::size_t kept = 0, at = 0;
  for (std::size_t b = 0; b + 1 < queries.offsets.size(); ++b) {
    for (const auto end = static_cast<std::size_t>(queries.offsets[b + 1]); at < end; ++at) {
      const std::int64_t row = own_row(queries.excluded[at]);
      if (row >= 0) queries.excluded[kept++] = row;
    }
    queries.offsets[b + 1] = static_cast<std::int64_t>(kept);
  }
  queries.excluded.resize(kept);
}

template <class T>
const std::vector<std::int64_t>& TargetRanks<T>::compute(const Context& ctx,
                                                         const UserVectors<T>& users,
                                                         const std::vector<std::int64_t>& targets,
                                                         const Exclusions& excluded) {
  Queries queries = gather(ctx, users, targets, excluded);
  if (items_.group() != nullptr) keep_own(queries);
  const std::int64_t all = std::ssize(queries.targets);
  counts_.assign(static_cast<std::size_t>(all), 0);
  if (all > 0 && vectors_.rows().rows > 0) {
    ops::RetrievalInputs<T> inputs;
    inputs.query = queries.rows;
    inputs.table = vectors_.rows();
    inputs.query_inverse_norms = queries.inverse_norms;
    inputs.table_inverse_norms = vectors_.inverse_norms();
    inputs.target = on_context(ctx, queries.targets, target_);
    inputs.target_rows = queries.target_rows;
    inputs.target_inverse_norms = queries.target_inverse_norms;
    if (excluded.ids != nullptr) {
      inputs.excluded = on_context(ctx, queries.excluded, excluded_);
      inputs.excluded_offsets = on_context(ctx, queries.offsets, offsets_);
    }
    ctx.workspace().reserve(
        ops::top_k_workspace_bytes(ctx, all, queries.rows.cols, inputs.excluded.shape[0], 0));
    if (found_.size() < all) found_ = Tensor(DType::kI64, {all}, ctx.device());
    const View<std::int64_t, 1> out = model::first_values<std::int64_t>(found_, all);
    ops::rank_of_target<T>(ctx, inputs, out);
    copy_bytes(ctx, counts_.data(), out.data, counts_.size() * sizeof(counts_[0]));
    synchronize(ctx);
    for (std::int64_t& count : counts_) --count;
  }
  if (items_.group() != nullptr) items_.group()->all_reduce(counts_, dist::Reduce::kSum);
  const auto before =
      std::accumulate(users_of_.begin(), users_of_.begin() + items_.shard_index(), std::int64_t{0});
  ranks_.assign(counts_.begin() + before, counts_.begin() + before + std::ssize(targets));
  for (std::int64_t& rank : ranks_) ++rank;
  return ranks_;
}

template class TargetRanks<float>;
template class TargetRanks<bf16>;

}  // namespace turbogr::train
