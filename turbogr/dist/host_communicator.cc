#include "turbogr/dist/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::dist {
namespace {

// Below this an all-reduce sends everything to everybody: one exchange instead of two.
constexpr std::int64_t kSmallBytes = 4096;
// Up to so many ranks everybody is sent to at once; beyond, barriers, broadcasts and small gathers
// go in rounds, each rank sending to one other a round and reaching twice as many as the round
// before.
constexpr int kFewRanks = 8;
// Of all ranks together: beyond, the bytes take longer than the rounds save.
constexpr std::int64_t kSmallGather = 256 << 10;
// Tags: group << 16 | operation and phase. A wrap needs 2^12 operations of a group in flight.
constexpr int kOperationBits = 16;
constexpr int kMaxGroups = Transport::kTags >> kOperationBits;

template <class T>
void reduce_into(T* sums, const T* values, std::int64_t count, Reduce reduce) {
  if (reduce == Reduce::kSum) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) sums[i] = std::max(sums[i], values[i]);
  }
}

void reduce_into(DType dtype, void* sums, const void* values, std::int64_t count, Reduce reduce) {
  if (dtype == DType::kF32) {
    reduce_into(static_cast<float*>(sums), static_cast<const float*>(values), count, reduce);
  } else if (dtype == DType::kF64) {
    reduce_into(static_cast<double*>(sums), static_cast<const double*>(values), count, reduce);
  } else {
    reduce_into(static_cast<std::int64_t*>(sums), static_cast<const std::int64_t*>(values), count,
                reduce);
  }
}

void check_values(const Values& values, const char* collective) {
  TGR_CHECK(
      values.dtype == DType::kF32 || values.dtype == DType::kF64 || values.dtype == DType::kI64,
      collective, ": cannot reduce ", name_of(values.dtype), "; use f32, f64 or i64");
  TGR_CHECK(values.count >= 0, collective, ": ", values.count, " values");
}

void check_counts(std::span<const std::int64_t> counts, int size, const char* collective) {
  TGR_CHECK(static_cast<int>(counts.size()) == size, collective, ": ", counts.size(),
            " counts for ", size, " ranks");
  for (const std::int64_t count : counts) TGR_CHECK(count >= 0, collective, ": a count of ", count);
}

std::byte* bytes_at(void* data, std::int64_t offset) {
  return static_cast<std::byte*>(data) + offset;
}
const std::byte* bytes_at(const void* data, std::int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

}  // namespace

HostCommunicator::HostCommunicator(std::shared_ptr<Engine> engine)
    : HostCommunicator(
          engine,
          [&] {
            std::vector<int> all(static_cast<std::size_t>(engine->transport().size()));
            std::iota(all.begin(), all.end(), 0);
            return all;
          }(),
          /*group=*/0, "world") {}

HostCommunicator::HostCommunicator(std::shared_ptr<Engine> engine, std::vector<int> members,
                                   int group, std::string name)
    : engine_(std::move(engine)),
      members_(std::move(members)),
      group_(group),
      name_(std::move(name)) {
  TGR_CHECK(group < kMaxGroups, "group '", name_, "' would be number ", group,
            "; a world has room for ", kMaxGroups, " groups in its life: make them once");
  const int own = engine_->transport().rank();
  for (const int member : members_) {
    if (member == own) rank_ = static_cast<int>(nodes_.size());
    nodes_.push_back(engine_->transport().nodes()[static_cast<std::size_t>(member)]);
  }
}

Pending HostCommunicator::start(const char* collective, std::vector<Phase> phases) {
  for (Phase& phase : phases) {
    for (Phase::Send& send : phase.sends) send.peer = members_[static_cast<std::size_t>(send.peer)];
    for (Phase::Receive& receive : phase.receives) {
      receive.peer = members_[static_cast<std::size_t>(receive.peer)];
    }
  }
  Operation operation;
  operation.what = std::string(collective) + " " + std::to_string(started_) + " of " + name_;
  const std::int64_t turn = started_++ * Engine::kMaxPhases;
  operation.first_tag =
      (group_ << kOperationBits) | static_cast<int>(turn & ((1 << kOperationBits) - 1));
  operation.phases = std::move(phases);
  return engine_->start(std::move(operation));
}

HostCommunicator::Cut HostCommunicator::cut_of(std::int64_t count, int rank) const {
  const std::int64_t part = (count + size() - 1) / size();
  return {std::min(count, rank * part), std::min(count, (rank + 1) * part)};
}

Phase HostCommunicator::gather_versions(const Values& values, const std::vector<Cut>& cuts,
                                        void* sums, Reduce reduce) const {
  const auto width = static_cast<std::int64_t>(size_of(values.dtype));
  const Cut own = cuts[static_cast<std::size_t>(rank_)];
  const std::int64_t count = own.end - own.begin;
  const auto bytes = static_cast<std::size_t>(count * width);
  auto versions = std::make_shared<std::vector<std::byte>>(bytes * members_.size());
  Phase phase;
  for (int peer = 0; peer < size(); ++peer) {
    const Cut cut = cuts[static_cast<std::size_t>(peer)];
    if (cut.end > cut.begin) {
      phase.sends.push_back({peer, bytes_at(std::as_const(values.data), cut.begin * width),
                             static_cast<std::size_t>((cut.end - cut.begin) * width)});
    }
    if (count > 0) {
      phase.receives.push_back(
          {peer, versions->data() + static_cast<std::size_t>(peer) * bytes, bytes});
    }
  }
  const DType dtype = values.dtype;
  const std::size_t ranks = members_.size();
  phase.after = [versions, sums, count, bytes, dtype, ranks, reduce] {
    if (count == 0) return;
    std::byte* total = versions->data();
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      reduce_into(dtype, total, versions->data() + rank * bytes, count, reduce);
    }
    std::memcpy(sums, total, bytes);
  };
  return phase;
}

Pending HostCommunicator::start_all_reduce(Values values, Reduce reduce) {
  check_values(values, "all_reduce");
  const auto width = static_cast<std::int64_t>(size_of(values.dtype));
  if (values.count * width <= kSmallBytes && size() > kFewRanks) {
    // Every version to everybody, in rounds; all add them up in rank order.
    const std::int64_t bytes = values.count * width;
    auto versions =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes * size()));
    std::vector<Phase> phases =
        gather_in_rounds(values.data, versions->data(),
                         std::vector<std::int64_t>(static_cast<std::size_t>(size()), bytes));
    phases.back().after = [versions, values, bytes, reduce, ranks = size(),
                           placed = std::move(phases.back().after)] {
      placed();
      for (int rank = 1; rank < ranks; ++rank) {
        reduce_into(values.dtype, versions->data(), versions->data() + rank * bytes, values.count,
                    reduce);
      }
      if (bytes > 0) {
        std::memcpy(values.data, versions->data(), static_cast<std::size_t>(bytes));
      }
    };
    return start("all_reduce", std::move(phases));
  }
  if (values.count * width <= kSmallBytes) {
    const std::vector<Cut> everything(members_.size(), Cut{0, values.count});
    return start("all_reduce", {gather_versions(values, everything, values.data, reduce)});
  }
  std::vector<Cut> cuts;
  cuts.reserve(members_.size());
  for (int rank = 0; rank < size(); ++rank) cuts.push_back(cut_of(values.count, rank));
  const Cut own = cuts[static_cast<std::size_t>(rank_)];
  // The sums may overwrite own elements: all sends of the first phase are done by then.
  Phase reduced = gather_versions(values, cuts, bytes_at(values.data, own.begin * width), reduce);
  Phase spread;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    const Cut cut = cuts[static_cast<std::size_t>(peer)];
    if (own.end > own.begin) {
      spread.sends.push_back({peer, bytes_at(std::as_const(values.data), own.begin * width),
                              static_cast<std::size_t>((own.end - own.begin) * width)});
    }
    if (cut.end > cut.begin) {
      spread.receives.push_back({peer, bytes_at(values.data, cut.begin * width),
                                 static_cast<std::size_t>((cut.end - cut.begin) * width)});
    }
  }
  std::vector<Phase> phases;
  phases.push_back(std::move(reduced));
  phases.push_back(std::move(spread));
  return start("all_reduce", std::move(phases));
}

// Bruck's: after round k a rank has the parts of the 2^(k + 1) ranks from its own on, end to end in
// a buffer; the last one puts them where they belong.
std::vector<Phase> HostCommunicator::gather_in_rounds(const void* own, std::byte* all,
                                                      std::vector<std::int64_t> counts) const {
  const int ranks = size();
  const auto count_of = [&](int distance) {
    return counts[static_cast<std::size_t>((rank_ + distance) % ranks)];
  };
  std::vector<std::int64_t> ends = {0};  // of the parts by distance from this rank
  for (int distance = 0; distance < ranks; ++distance) {
    ends.push_back(ends.back() + count_of(distance));
  }
  auto buffer = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(ends.back()));
  if (count_of(0) > 0) std::memcpy(buffer->data(), own, static_cast<std::size_t>(count_of(0)));
  std::vector<Phase> phases;
  for (int reach = 1; reach < ranks; reach *= 2) {
    const int more = std::min(reach, ranks - reach);  // parts that change hands
    Phase phase;
    phase.sends.push_back({(rank_ - reach + ranks) % ranks, buffer->data(),
                           static_cast<std::size_t>(ends[static_cast<std::size_t>(more)])});
    const int reached = reach + more;
    const std::int64_t begin = ends[static_cast<std::size_t>(reach)];
    const std::int64_t end = ends[static_cast<std::size_t>(reached)];
    phase.receives.push_back(
        {(rank_ + reach) % ranks, buffer->data() + begin, static_cast<std::size_t>(end - begin)});
    phases.push_back(std::move(phase));
  }
  phases.back().after = [buffer, all, ends, counts = std::move(counts), rank = rank_, ranks] {
    std::int64_t place = 0;
    for (int from = 0; from < ranks; ++from) {
      const std::int64_t bytes = counts[static_cast<std::size_t>(from)];
      const auto distance = static_cast<std::size_t>((from - rank + ranks) % ranks);
      if (bytes > 0) {
        std::memcpy(all + place, buffer->data() + ends[distance], static_cast<std::size_t>(bytes));
      }
      place += bytes;
    }
  };
  return phases;
}

Pending HostCommunicator::start_all_gather(const void* own, ReceiveParts all) {
  check_counts(all.counts, size(), "all_gather");
  const std::int64_t total = std::accumulate(all.counts.begin(), all.counts.end(), std::int64_t{0});
  if (size() > kFewRanks && total <= kSmallGather) {
    return start("all_gather",
                 gather_in_rounds(own, bytes_at(all.data, 0),
                                  std::vector<std::int64_t>(all.counts.begin(), all.counts.end())));
  }
  const std::int64_t own_bytes = all.counts[static_cast<std::size_t>(rank_)];
  Phase phase;
  std::int64_t offset = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t bytes = all.counts[static_cast<std::size_t>(peer)];
    if (own_bytes > 0) {
      phase.sends.push_back({peer, bytes_at(own, 0), static_cast<std::size_t>(own_bytes)});
    }
    if (bytes > 0) {
      phase.receives.push_back({peer, bytes_at(all.data, offset), static_cast<std::size_t>(bytes)});
    }
    offset += bytes;
  }
  return start("all_gather", {std::move(phase)});
}

Pending HostCommunicator::start_all_to_all(SendParts send, ReceiveParts receive) {
  check_counts(send.counts, size(), "all_to_all");
  check_counts(receive.counts, size(), "all_to_all");
  const auto own = static_cast<std::size_t>(rank_);
  TGR_CHECK(send.counts[own] == receive.counts[own], "all_to_all: rank ", rank_, " sends itself ",
            send.counts[own], " bytes and wants ", receive.counts[own]);
  Phase phase;
  std::int64_t sent = 0, received = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t out = send.counts[static_cast<std::size_t>(peer)];
    const std::int64_t in = receive.counts[static_cast<std::size_t>(peer)];
    if (out > 0) {
      phase.sends.push_back({peer, bytes_at(send.data, sent), static_cast<std::size_t>(out)});
    }
    if (in > 0) {
      phase.receives.push_back(
          {peer, bytes_at(receive.data, received), static_cast<std::size_t>(in)});
    }
    sent += out;
    received += in;
  }
  return start("all_to_all", {std::move(phase)});
}

Pending HostCommunicator::start_broadcast(void* data, std::int64_t bytes, int root) {
  TGR_CHECK(root >= 0 && root < size(), "broadcast: root ", root, " of ", size(), " ranks");
  TGR_CHECK(bytes >= 0, "broadcast: ", bytes, " bytes");
  // A tree: in round k those that have it, the first 2^k from the root on, send it as far ahead.
  std::vector<Phase> phases;
  const int place = (rank_ - root + size()) % size();
  for (int reach = 1; reach < size(); reach *= 2) {
    Phase phase;
    const auto rank_at = [&](int other) { return (other + root) % size(); };
    if (place < reach && place + reach < size()) {
      phase.sends.push_back({rank_at(place + reach), bytes_at(std::as_const(data), 0),
                             static_cast<std::size_t>(bytes)});
    } else if (place >= reach && place < 2 * reach) {
      phase.receives.push_back(
          {rank_at(place - reach), bytes_at(data, 0), static_cast<std::size_t>(bytes)});
    }
    phases.push_back(std::move(phase));
  }
  if (phases.empty()) phases.emplace_back();
  return start("broadcast", std::move(phases));
}

// After round k a rank has heard of the 2^(k + 1) - 1 before it.
Pending HostCommunicator::start_barrier() {
  std::vector<Phase> phases;
  for (int reach = 1; reach < size(); reach *= 2) {
    Phase phase;
    phase.sends.push_back({(rank_ + reach) % size(), nullptr, 0});
    phase.receives.push_back({(rank_ - reach + size()) % size(), nullptr, 0});
    phases.push_back(std::move(phase));
  }
  if (phases.empty()) phases.emplace_back();
  return start("barrier", std::move(phases));
}

std::unique_ptr<Communicator> HostCommunicator::split(int colour, int key, std::string name) {
  struct Wish {
    int colour, key, next_group;
  };
  const std::vector<Wish> wishes = all_gather_value(Wish{colour, key, engine_->next_group()});
  // A number none of the members has used: two groups that share two ranks never share it.
  int group = 0;
  std::vector<int> chosen;
  for (int rank = 0; rank < size(); ++rank) {
    const Wish& wish = wishes[static_cast<std::size_t>(rank)];
    group = std::max(group, wish.next_group);
    if (wish.colour == colour) chosen.push_back(rank);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  for (int& rank : chosen) rank = members_[static_cast<std::size_t>(rank)];
  engine_->set_next_group(group + 1);
  return std::unique_ptr<Communicator>(
      new HostCommunicator(engine_, std::move(chosen), group, std::move(name)));
}

}  // namespace turbogr::dist
