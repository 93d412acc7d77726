// What each rank of a group has to ask of the others' parts of the items, made known to all: the
// users' rows, numbers and lists, end to end by rank. Without a group they are one's own.
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/tensor.h"
#include "turbogr/core/view.h"
#include "turbogr/embedding/row_source.h"

namespace turbogr::eval {

// Items that do not count for each user, end to end.
struct Exclusions {
  const std::vector<std::int64_t>* ids = nullptr;      // null: none
  const std::vector<std::int64_t>* offsets = nullptr;  // [B + 1]
};

// Lists of ids, end to end; empty offsets: none.
struct IdLists {
  std::vector<std::int64_t> ids, offsets;

  // Keeps those that place(id) gives a place, as that; -1: none.
  template <class Place>
  void map(Place&& place) {
    std::size_t kept = 0, at = 0;
    for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
      for (const auto end = static_cast<std::size_t>(offsets[b + 1]); at < end; ++at) {
        const std::int64_t there = place(ids[at]);
        if (there >= 0) ids[kept++] = there;
      }
      offsets[b + 1] = static_cast<std::int64_t>(kept);
    }
    ids.resize(kept);
  }
};

template <class T>
class GroupLists {
 public:
  explicit GroupLists(embedding::RowSource<T>& items) : items_(items) {}

  // All below is collective. First how many users each rank has.
  void count(std::int64_t own);
  std::int64_t all() const;    // users of all ranks
  std::int64_t first() const;  // the place of this rank's first among them

  // One row or number a user, on the context's device; `memory` is the caller's to keep.
  Rows<const T> rows(const Context& ctx, Rows<const T> own, Tensor& memory) const;
  View<const float, 1> values(const Context& ctx, View<const float, 1> own, Tensor& memory) const;
  // Any number of them.
  std::vector<std::int64_t> ids(const std::vector<std::int64_t>& own) const;
  IdLists lists(const Exclusions& own) const;

 private:
  embedding::RowSource<T>& items_;
  std::vector<std::int64_t> users_of_;  // each rank
};

}  // namespace turbogr::eval
