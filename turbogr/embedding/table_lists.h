// Lists of numbers of every table for every rank of a group, in one message with their counts in
// another before it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/counts.h"
#include "turbogr/embedding/route.h"

namespace turbogr::embedding {

// One table's: what goes to (or comes from) each rank, end to end in their order.
template <class T>
struct SendList {
  const std::vector<T>& values;
  const std::vector<std::int64_t>& counts;  // [ranks]
};
template <class T>
struct ReceiveList {
  std::vector<T>& values;
  std::vector<std::int64_t>& counts;
};

// counts[rank][table] -> bytes to or from each rank; returns all of them.
template <class T>
std::int64_t bytes_a_rank(const std::vector<std::int64_t>& counts, std::size_t tables,
                          std::vector<std::int64_t>& bytes) {
  bytes.assign(counts.size() / tables, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    bytes[i / tables] += counts[i] * static_cast<std::int64_t>(sizeof(T));
  }
  return sum_of(bytes);
}

// Calls body(table, the first of its values, how many, where they stand in the message, in bytes)
// for every block of counts[rank][table], in the order of the message.
template <class T, class Body>
void for_each_block(const std::vector<std::int64_t>& counts, std::vector<std::size_t>& next_of,
                    Body&& body) {
  std::fill(next_of.begin(), next_of.end(), std::size_t{0});
  std::size_t in_message = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t table = i % next_of.size();
    const auto count = static_cast<std::size_t>(counts[i]);
    if (count > 0) body(table, next_of[table], count, in_message);
    next_of[table] += count;
    in_message += count * sizeof(T);
  }
}

// send(t) is a SendList, receive(t) a ReceiveList whose memory is filled.
template <class T, class Send, class Receive>
void exchange_lists(dist::Communicator& group, std::size_t tables, Send&& send, Receive&& receive,
                    ListBuffers& lists) {
  const auto ranks = static_cast<std::size_t>(group.size());
  lists.send_counts.resize(ranks * tables);
  lists.receive_counts.resize(ranks * tables);
  lists.next_of.resize(tables);
  for (std::size_t t = 0; t < tables; ++t) {
    const SendList<T> list = send(t);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      lists.send_counts[rank * tables + t] = list.counts[rank];
    }
  }
  lists.send_bytes.assign(ranks, static_cast<std::int64_t>(tables * sizeof(std::int64_t)));
  group.all_to_all({lists.send_counts.data(), lists.send_bytes},
                   {lists.receive_counts.data(), lists.send_bytes});

  lists.sending.resize(
      static_cast<std::size_t>(bytes_a_rank<T>(lists.send_counts, tables, lists.send_bytes)));
  lists.receiving.resize(
      static_cast<std::size_t>(bytes_a_rank<T>(lists.receive_counts, tables, lists.receive_bytes)));
  for_each_block<T>(lists.send_counts, lists.next_of,
                    [&](std::size_t t, std::size_t first, std::size_t count, std::size_t at) {
                      std::memcpy(lists.sending.data() + at, send(t).values.data() + first,
                                  count * sizeof(T));
                    });
  group.all_to_all({lists.sending.data(), lists.send_bytes},
                   {lists.receiving.data(), lists.receive_bytes});
  for (std::size_t t = 0; t < tables; ++t) {
    const ReceiveList<T> list = receive(t);
    list.counts.resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      list.counts[rank] = lists.receive_counts[rank * tables + t];
    }
    list.values.resize(static_cast<std::size_t>(sum_of(list.counts)));
  }
  for_each_block<T>(lists.receive_counts, lists.next_of,
                    [&](std::size_t t, std::size_t first, std::size_t count, std::size_t at) {
                      std::memcpy(receive(t).values.data() + first, lists.receiving.data() + at,
                                  count * sizeof(T));
                    });
}

}  // namespace turbogr::embedding
