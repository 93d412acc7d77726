// What every communicator over a device's memory must do, in whatever group it is called. Throws
// where it does not.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/tensor.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::test {

template <class T>
Tensor to_device(const Context& ctx, const std::vector<T>& values) {
  Tensor host(DType::kU8, {static_cast<std::int64_t>(values.size() * sizeof(T))});
  if (!values.empty()) std::memcpy(host.data(), values.data(), host.bytes());
  Tensor placed(host.dtype(), host.shape(), ctx.device());
  copy_tensor(ctx, placed, host);
  return placed;
}

template <class T>
std::vector<T> from_device(const Context& ctx, const Tensor& tensor) {
  const Tensor host = to_host(ctx, tensor);
  std::vector<T> values(host.bytes() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), host.data(), host.bytes());
  return values;
}

template <class T>
dist::Values values_of(Tensor& tensor) {
  return {reinterpret_cast<T*>(tensor.data()),
          static_cast<std::int64_t>(tensor.bytes() / sizeof(T))};
}

// Whole numbers, so that sums are the same in any order.
inline float whole_term(int rank, std::int64_t i) {
  return static_cast<float>((i * 31 + rank * 17) % 1001 - 500);
}

inline void check_device_reductions(const Context& ctx, dist::Communicator& group,
                                    std::int64_t count) {
  const int size = group.size();
  const auto length = static_cast<std::size_t>(count);
  std::vector<float> own(length), wanted(length, 0.0f);
  std::vector<std::int64_t> numbers(length), largest(length);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    own[at] = whole_term(group.rank(), i);
    for (int rank = 0; rank < size; ++rank) wanted[at] += whole_term(rank, i);
    numbers[at] = i * (group.rank() + 1);
    largest[at] = i * size;
  }
  Tensor values = to_device(ctx, own), most = to_device(ctx, numbers);
  dist::Pending sums = group.start_all_reduce(values_of<float>(values), dist::Reduce::kSum);
  group.all_reduce(values_of<std::int64_t>(most), dist::Reduce::kMax);
  sums.wait();
  TGR_CHECK(from_device<float>(ctx, values) == wanted, group.name(), ": all_reduce of ", count);
  TGR_CHECK(from_device<std::int64_t>(ctx, most) == largest, group.name(), ": largest of ", count);
}

// Rank a sends rank b (a + 2 b) % 5 numbers, some none; and back again.
inline void check_device_all_to_all(const Context& ctx, dist::Communicator& group) {
  const int own = group.rank();
  const auto amount = [](int from, int to) { return (from + 2 * to) % 5 + (from == to ? 1 : 0); };
  std::vector<std::int64_t> out_counts, in_counts, out, wanted;
  for (int peer = 0; peer < group.size(); ++peer) {
    out_counts.push_back(8 * amount(own, peer));
    in_counts.push_back(8 * amount(peer, own));
    for (int i = 0; i < amount(own, peer); ++i) out.push_back(own * 10000 + peer * 100 + i);
    for (int i = 0; i < amount(peer, own); ++i) wanted.push_back(peer * 10000 + own * 100 + i);
  }
  const Tensor sending = to_device(ctx, out);
  Tensor arriving = to_device(ctx, std::vector<std::int64_t>(wanted.size(), -1));
  Tensor back = to_device(ctx, std::vector<std::int64_t>(out.size(), -1));
  group.all_to_all({sending.data(), out_counts}, {arriving.data(), in_counts});
  group.all_to_all({arriving.data(), in_counts}, {back.data(), out_counts});
  TGR_CHECK(from_device<std::int64_t>(ctx, arriving) == wanted, group.name(), ": all_to_all");
  TGR_CHECK(from_device<std::int64_t>(ctx, back) == out, group.name(), ": all_to_all and back");
}

inline void check_device_gather_and_broadcast(const Context& ctx, dist::Communicator& group) {
  for (const bool equal : {true, false}) {
    std::vector<std::int64_t> counts, own, wanted;
    for (int rank = 0; rank < group.size(); ++rank) {
      const int amount = equal ? 5 : 3 * rank;  // of unequal ones rank 0 gives none
      counts.push_back(8 * amount);
      for (int i = 0; i < amount; ++i) {
        wanted.push_back(100 * rank + i);
        if (rank == group.rank()) own.push_back(100 * rank + i);
      }
    }
    const Tensor given = to_device(ctx, own);
    Tensor all = to_device(ctx, std::vector<std::int64_t>(wanted.size(), -1));
    group.all_gather(given.data(), {all.data(), counts});
    TGR_CHECK(from_device<std::int64_t>(ctx, all) == wanted, group.name(), ": all_gather");
  }
  for (int root = 0; root < group.size(); ++root) {
    Tensor data = to_device(ctx, std::vector<int>(1000, group.rank() == root ? root + 5 : -1));
    group.broadcast(data.data(), static_cast<std::int64_t>(data.bytes()), root);
    TGR_CHECK(from_device<int>(ctx, data) == std::vector<int>(1000, root + 5), group.name(),
              ": broadcast from ", root);
  }
}

// Many at once, waited for in another order than they were started in.
inline void check_device_pending(const Context& ctx, dist::Communicator& group) {
  std::vector<Tensor> values;
  std::vector<dist::Pending> pending;
  for (int i = 0; i < 12; ++i) {
    values.push_back(to_device(ctx, std::vector<float>(static_cast<std::size_t>(1 + 997 * i),
                                                       static_cast<float>(group.rank() + i))));
  }
  for (Tensor& each : values) {
    pending.push_back(group.start_all_reduce(values_of<float>(each), dist::Reduce::kSum));
  }
  for (std::size_t i = pending.size(); i-- > 0;) {
    if (i % 3 == 0) {
      while (!pending[i].done()) {
      }
    }
    pending[i].wait();
    const float wanted = static_cast<float>(group.size() * (group.size() - 1)) / 2.0f +
                         static_cast<float>(i) * static_cast<float>(group.size());
    TGR_CHECK(from_device<float>(ctx, values[i]) ==
                  std::vector<float>(values[i].bytes() / sizeof(float), wanted),
              group.name(), ": pending all_reduce ", i);
  }
}

inline void check_device_collectives(const Context& ctx, dist::Communicator& group) {
  for (const std::int64_t count : {0, 1, 1023, 100003}) check_device_reductions(ctx, group, count);
  check_device_all_to_all(ctx, group);
  check_device_gather_and_broadcast(ctx, group);
  check_device_pending(ctx, group);
  group.barrier();
}

}  // namespace turbogr::test
