#include "turbogr/eval/group_lists.h"

#include <numeric>

#include "turbogr/dist/communicator.h"

namespace turbogr::eval {
namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::size_t bytes) {
  for (std::int64_t& count : counts) count *= static_cast<std::int64_t>(bytes);
  return counts;
}

}  // namespace

template <class T>
void GroupLists<T>::count(std::int64_t own) {
  users_of_ = items_.group() == nullptr ? std::vector{own} : items_.group()->all_gather_value(own);
}

template <class T>
std::int64_t GroupLists<T>::all() const {
  return sum_of(users_of_);
}

template <class T>
std::int64_t GroupLists<T>::first() const {
  return std::accumulate(users_of_.begin(), users_of_.begin() + items_.shard_index(),
                         std::int64_t{0});
}

template <class T>
Rows<const T> GroupLists<T>::rows(const Context& ctx, Rows<const T> own, Tensor& memory) const {
  if (items_.group() == nullptr) return own;
  const std::int64_t width = own.cols;
  if (memory.size() < all() * width) memory = Tensor(dtype_of<T>(), {all(), width}, ctx.device());
  const auto row_bytes = static_cast<std::size_t>(width) * sizeof(T);
  items_.device_group()->all_gather(own.data, {memory.data(), times(users_of_, row_bytes)});
  return Rows<const T>(reinterpret_cast<const T*>(memory.data()), all(), width, width);
}

template <class T>
View<const float, 1> GroupLists<T>::values(const Context& ctx, View<const float, 1> own,
                                           Tensor& memory) const {
  if (items_.group() == nullptr) return own;
  if (memory.size() < all()) memory = Tensor(DType::kF32, {all()}, ctx.device());
  items_.device_group()->all_gather(own.data, {memory.data(), times(users_of_, sizeof(float))});
  return {reinterpret_cast<const float*>(memory.data()), {all()}};
}

template <class T>
std::vector<std::int64_t> GroupLists<T>::ids(const std::vector<std::int64_t>& own) const {
  dist::Communicator* const group = items_.group();
  if (group == nullptr) return own;
  const std::vector<std::int64_t> counts = group->all_gather_value(std::ssize(own));
  std::vector<std::int64_t> joined(static_cast<std::size_t>(sum_of(counts)));
  group->all_gather(own.data(), {joined.data(), times(counts, sizeof(std::int64_t))});
  return joined;
}

template <class T>
IdLists GroupLists<T>::lists(const Exclusions& own) const {
  if (own.ids == nullptr) return {};
  std::vector<std::int64_t> sizes;
  for (std::size_t b = 0; b + 1 < own.offsets->size(); ++b) {
    sizes.push_back((*own.offsets)[b + 1] - (*own.offsets)[b]);
  }
  IdLists joined = {ids(*own.ids), {0}};
  for (const std::int64_t size : ids(sizes)) {
    joined.offsets.push_back(joined.offsets.back() + size);
  }
  return joined;
}

template class GroupLists<float>;
template class GroupLists<bf16>;

}  // namespace turbogr::eval
