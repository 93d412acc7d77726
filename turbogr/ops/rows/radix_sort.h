// A stable parallel radix sort of (key, position) pairs in borrowed memory. A stable sort has one
// result, so the bits never depend on the thread count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "turbogr/core/thread_pool.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

template <class Key>
struct Keyed {
  Key key;
  std::uint32_t position;
};

// Elements of the histogram that radix_sort needs for `count` items.
std::int64_t radix_histogram_size(std::int64_t count);

// Sorts items [0, count) by the lowest `key_bits` bits of their keys (higher ones must be zero),
// using `spare` of the same size. Returns where the sorted items are: `items` or `spare`.
template <class Key>
Keyed<Key>* radix_sort(ThreadPool& pool, Keyed<Key>* items, Keyed<Key>* spare, std::int64_t count,
                       int key_bits, View<std::uint32_t, 1> histogram);

}  // namespace turbogr::ops
