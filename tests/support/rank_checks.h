// What every backend must do, as a program of one rank. A fault is an Error that names it.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/dist/topology.h"

namespace turbogr::test {

// Sums whose order shows: f32 terms of very different sizes.
inline float term(int rank, std::int64_t i) {
  return (rank % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(1 + i % 7) *
         (rank % 3 == 0 ? 1e7f : 0.37f);
}

inline void check_reductions(dist::Communicator& group, std::int64_t count) {
  const int size = group.size();
  std::vector<float> values(static_cast<std::size_t>(count)), wanted(values.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    values[at] = term(group.rank(), i);
    wanted[at] = term(0, i);
    for (int rank = 1; rank < size; ++rank) wanted[at] += term(rank, i);
  }
  group.all_reduce(values, dist::Reduce::kSum);
  TGR_CHECK(values == wanted, group.name(), ": all_reduce of ", count, " is not the ordered sum");

  std::vector<std::int64_t> largest(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < largest.size(); ++i) {
    largest[i] = static_cast<std::int64_t>(i) * (group.rank() == size / 2 ? 3 : 2);
  }
  group.all_reduce(largest, dist::Reduce::kMax);
  for (std::size_t i = 0; i < largest.size(); ++i) {
    TGR_CHECK(largest[i] == static_cast<std::int64_t>(i) * 3, group.name(), ": largest at ", i);
  }
}

// Rank a sends rank b (a + 2 b) % 5 numbers, some none; and back again.
inline void check_all_to_all(dist::Communicator& group) {
  const int size = group.size();
  const int own = group.rank();
  const auto amount = [](int from, int to) { return (from + 2 * to) % 5; };
  std::vector<std::int64_t> out_counts, in_counts, out, wanted;
  for (int peer = 0; peer < size; ++peer) {
    out_counts.push_back(8 * amount(own, peer));
    in_counts.push_back(8 * amount(peer, own));
    for (int i = 0; i < amount(own, peer); ++i) out.push_back(own * 10000 + peer * 100 + i);
    for (int i = 0; i < amount(peer, own); ++i) wanted.push_back(peer * 10000 + own * 100 + i);
  }
  std::vector<std::int64_t> in(wanted.size(), -1), back(out.size(), -1);
  group.all_to_all({out.data(), out_counts}, {in.data(), in_counts});
  TGR_CHECK(in == wanted, group.name(), ": all_to_all brought the wrong numbers");
  group.all_to_all({in.data(), in_counts}, {back.data(), out_counts});
  TGR_CHECK(back == out, group.name(), ": all_to_all and back is not the identity");
}

inline void check_gather_and_broadcast(dist::Communicator& group) {
  const int size = group.size();
  const std::vector<int> ranks = group.all_gather_value(group.rank() * 7);
  for (int rank = 0; rank < size; ++rank) {
    TGR_CHECK(ranks[static_cast<std::size_t>(rank)] == rank * 7, group.name(), ": all_gather");
  }
  // Rank r gives r bytes: rank 0 gives none.
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size));
  std::iota(counts.begin(), counts.end(), 0);
  const std::vector<char> own(static_cast<std::size_t>(group.rank()),
                              static_cast<char>('a' + group.rank()));
  std::string all(static_cast<std::size_t>(size * (size - 1) / 2), '?'), wanted;
  for (int rank = 0; rank < size; ++rank) {
    wanted += std::string(static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
  }
  group.all_gather(own.data(), {all.data(), counts});
  TGR_CHECK(all == wanted, group.name(), ": all_gather of unequal parts gave ", all);
  for (int root = 0; root < size; ++root) {
    std::vector<int> data(1000, group.rank() == root ? root + 5 : -1);
    group.broadcast(data.data(), static_cast<std::int64_t>(data.size() * sizeof(int)), root);
    TGR_CHECK(data == std::vector<int>(1000, root + 5), group.name(), ": broadcast from ", root);
  }
}

// Many at once, waited for in another order than they were started in.
inline void check_pending(dist::Communicator& group) {
  std::vector<std::vector<float>> values;
  for (int i = 0; i < 20; ++i) {
    values.emplace_back(static_cast<std::size_t>(1 + 997 * i),
                        static_cast<float>(group.rank() + i));
  }
  std::vector<dist::Pending> pending;
  for (auto& each : values) pending.push_back(group.start_all_reduce(each, dist::Reduce::kSum));
  for (std::size_t i = pending.size(); i-- > 0;) {
    if (i % 3 == 0) {
      while (!pending[i].done()) {
      }
    }
    pending[i].wait();
    const float wanted = static_cast<float>(group.size() * (group.size() - 1)) / 2.0f +
                         static_cast<float>(i) * static_cast<float>(group.size());
    TGR_CHECK(values[i] == std::vector<float>(values[i].size(), wanted), group.name(),
              ": pending all_reduce ", i);
  }
}

inline void check_collectives(dist::Communicator& group) {
  for (const std::int64_t count : {0, 1, 3, 1023, 5000, 100003}) check_reductions(group, count);
  check_all_to_all(group);
  check_gather_and_broadcast(group);
  check_pending(group);
  group.barrier();
}

// Groups of every size that divides the world, and a reversed world, all at once.
inline void check_groups(dist::Communicator& world) {
  const std::unique_ptr<dist::Communicator> reversed = world.split(0, -world.rank(), "reversed");
  TGR_CHECK(reversed->rank() == world.size() - 1 - world.rank(), "split ignored the key");
  for (int group_size = 1; group_size <= world.size(); ++group_size) {
    if (world.size() % group_size != 0) continue;
    const dist::Topology topology = dist::make_topology(world.nodes(), group_size);
    dist::SparseGroups groups = dist::make_sparse_groups(world, topology);
    TGR_CHECK(groups.group->size() == group_size, "group of ", groups.group->size());
    TGR_CHECK(groups.replicas->size() == world.size() / group_size, "replicas");
    check_collectives(*groups.group);
    check_collectives(*groups.replicas);
  }
  check_collectives(*reversed);
}

}  // namespace turbogr::test
