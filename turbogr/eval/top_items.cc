#include "turbogr/eval/top_items.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "turbogr/core/device_memory.h"

namespace turbogr::eval {

template <class T>
TopItems<T>::TopItems(const Context& ctx, RowEncoder<T>& items,
                      const std::vector<std::int64_t>& candidates)
    : items_(items.source()),
      group_(items_),
      chosen_(!candidates.empty()),
      rows_(own_rows(candidates)),
      vectors_(ctx, items, chosen_ ? &rows_ : nullptr) {
  if (!chosen_) return;
  place_of_.assign(static_cast<std::size_t>(items_.shard(0).rows()), -1);
  for (std::size_t place = 0; place < rows_.size(); ++place) {
    place_of_[static_cast<std::size_t>(rows_[place])] = static_cast<std::int64_t>(place);
  }
}

template <class T>
std::vector<std::int64_t> TopItems<T>::own_rows(const std::vector<std::int64_t>& candidates) const {
  const embedding::Sharding& sharding = items_.sharding(0);
  std::vector<std::int64_t> rows;
  for (const std::int64_t id : candidates) {
    if (sharding.shard_of(id) == items_.shard_index()) rows.push_back(sharding.row_of(id));
  }
  return rows;
}

template <class T>
std::int64_t TopItems<T>::place_of(std::int64_t id) const {
  const embedding::Sharding& sharding = items_.sharding(0);
  if (sharding.shard_of(id) != items_.shard_index()) return -1;
  const std::int64_t row = sharding.row_of(id);
  return chosen_ ? place_of_[static_cast<std::size_t>(row)] : row;
}

template <class T>
std::int64_t TopItems<T>::item_at(std::int64_t place) const {
  const std::int64_t row = chosen_ ? rows_[static_cast<std::size_t>(place)] : place;
  return items_.sharding(0).id_of(items_.shard_index(), row);
}

template <class T>
std::vector<std::vector<Recommendation>> TopItems<T>::compute(const Context& ctx,
                                                              const UserVectors<T>& users,
                                                              std::int64_t k,
                                                              const Exclusions& own_excluded) {
  group_.count(users.users());
  ops::RetrievalInputs<T> inputs;
  inputs.query = group_.rows(ctx, users.rows(), all_rows_);
  inputs.query_inverse_norms = group_.values(ctx, users.inverse_norms(), all_norms_);
  vectors_.add_to(inputs);
  IdLists excluded = group_.lists(own_excluded);
  excluded.map([&](std::int64_t id) { return place_of(id); });
  if (!excluded.offsets.empty()) {
    inputs.excluded = on_context(ctx, excluded.ids, excluded_);
    inputs.excluded_offsets = on_context(ctx, excluded.offsets, offsets_);
  }
  Lists lists = own_best(ctx, inputs, k);
  return items_.group() == nullptr ? lists : merged(lists, users.users(), k);
}

template <class T>
typename TopItems<T>::Lists TopItems<T>::own_best(const Context& ctx,
                                                  const ops::RetrievalInputs<T>& inputs,
                                                  std::int64_t k) const {
  const std::int64_t users = inputs.query.rows;
  Lists lists(static_cast<std::size_t>(users));
  const std::int64_t most = std::min(k, inputs.num_items());
  if (users == 0 || most == 0) return lists;
  Tensor places(DType::kI64, {users, most}, ctx.device());
  Tensor scores(DType::kF32, {users, most}, ctx.device());
  Tensor count(DType::kI64, {users}, ctx.device());
  ctx.workspace().reserve(
      ops::top_k_workspace_bytes(ctx, users, inputs.query.cols, inputs.excluded.shape[0], most));
  ops::top_k<T>(
      ctx, inputs,
      {places.view<std::int64_t, 2>(), scores.view<float, 2>(), count.view<std::int64_t, 1>()});
  places = to_host(ctx, places);
  scores = to_host(ctx, scores);
  count = to_host(ctx, count);
  for (std::int64_t user = 0; user < users; ++user) {
    std::vector<Recommendation>& list = lists[static_cast<std::size_t>(user)];
    for (std::int64_t i = 0; i < count.view<std::int64_t, 1>()(user); ++i) {
      list.push_back(
          {item_at(places.view<std::int64_t, 2>()(user, i)), scores.view<float, 2>()(user, i)});
    }
  }
  return lists;
}

template <class T>
typename TopItems<T>::Lists TopItems<T>::merged(const Lists& own, std::int64_t users,
                                                std::int64_t k) const {
  std::vector<std::int64_t> flat;  // of each list its length, then item, score, item, score ...
  for (const std::vector<Recommendation>& list : own) {
    flat.push_back(std::ssize(list));
    for (const Recommendation& entry : list) {
      flat.push_back(entry.item);
      flat.push_back(std::bit_cast<std::int32_t>(entry.score));
    }
  }
  flat = group_.ids(flat);
  Lists lists(static_cast<std::size_t>(users));
  const std::int64_t first = group_.first();
  for (std::size_t at = 0; at < flat.size();) {  // a turn for each rank
    for (std::int64_t user = 0; user < group_.all(); ++user) {
      const std::int64_t length = flat[at++];
      for (std::int64_t i = 0; i < length; ++i, at += 2) {
        if (user < first || user >= first + users) continue;
        lists[static_cast<std::size_t>(user - first)].push_back(
            {flat[at], std::bit_cast<float>(static_cast<std::int32_t>(flat[at + 1]))});
      }
    }
  }
  for (std::vector<Recommendation>& list : lists) {
    std::sort(list.begin(), list.end(), [](const Recommendation& a, const Recommendation& b) {
      return a.score != b.score ? a.score > b.score : a.item < b.item;
    });
    if (std::ssize(list) > k) list.resize(static_cast<std::size_t>(k));
  }
  return lists;
}

template class TopItems<float>;
template class TopItems<bf16>;

}  // namespace turbogr::eval
