#include "turbogr/dist/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/dist/message_rounds.h"

namespace turbogr::dist {
namespace {

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

// The messages of a round, in memory.
Phase phase_of(const Round& round, const void* from, void* to) {
  Phase phase;
  for (const Message& send : round.sends) {
    phase.sends.push_back(
        {send.peer, bytes_at(from, send.begin), static_cast<std::size_t>(send.bytes)});
  }
  for (const Message& receive : round.receives) {
    phase.receives.push_back(
        {receive.peer, bytes_at(to, receive.begin), static_cast<std::size_t>(receive.bytes)});
  }
  return phase;
}

// Rounds within one memory; at least one.
std::vector<Phase> phases_of(std::span<const Round> rounds, void* memory) {
  std::vector<Phase> phases;
  for (const Round& round : rounds) phases.push_back(phase_of(round, memory, memory));
  if (phases.empty()) phases.emplace_back();
  return phases;
}

void copy_to(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
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

Pending HostCommunicator::start_all_reduce(Values values, Reduce reduce) {
  check_values(values, "all_reduce");
  const auto width = static_cast<std::int64_t>(size_of(values.dtype));
  const std::vector<Round> rounds = all_reduce_rounds(rank_, size(), values.count, width);
  // Every rank's version of own elements (of all, where they are few), then added up in rank order.
  // The sums may overwrite own elements: all that were sent are gone by then.
  const bool gathers = sums_by_gathering(values.count, width);
  const Cut own = gathers ? Cut{0, values.count} : cut_of(values.count, size(), rank_);
  const std::int64_t count = own.end - own.begin;
  const auto bytes = static_cast<std::size_t>(count * width);
  auto versions = std::make_shared<std::vector<std::byte>>(bytes * members_.size());
  std::function<void()> add_up = [versions, sums = bytes_at(values.data, own.begin * width), count,
                                  bytes, dtype = values.dtype, ranks = members_.size(), reduce] {
    if (count == 0) return;
    std::byte* total = versions->data();
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      reduce_into(dtype, total, versions->data() + rank * bytes, count, reduce);
    }
    std::memcpy(sums, total, bytes);
  };
  std::vector<Phase> phases;
  if (gathers) {
    copy_to(versions->data() + static_cast<std::size_t>(rank_) * bytes, values.data, bytes);
    phases = phases_of(rounds, versions->data());
    phases.back().after = std::move(add_up);
  } else {
    phases = phases_of(std::span(rounds).subspan(1), values.data);
    phases.insert(phases.begin(), phase_of(rounds.front(), values.data, versions->data()));
    phases.front().after = std::move(add_up);
  }
  return start("all_reduce", std::move(phases));
}

Pending HostCommunicator::start_all_gather(const void* own, ReceiveParts all) {
  check_counts(all.counts, size(), "all_gather");
  const auto before = all.counts.begin() + rank_;
  copy_to(bytes_at(all.data, std::accumulate(all.counts.begin(), before, std::int64_t{0})), own,
          static_cast<std::size_t>(*before));
  return start("all_gather", phases_of(all_gather_rounds(rank_, all.counts), all.data));
}

Pending HostCommunicator::start_all_to_all(SendParts send, ReceiveParts receive) {
  check_counts(send.counts, size(), "all_to_all");
  check_counts(receive.counts, size(), "all_to_all");
  const auto own = static_cast<std::size_t>(rank_);
  TGR_CHECK(send.counts[own] == receive.counts[own], "all_to_all: rank ", rank_, " sends itself ",
            send.counts[own], " bytes and wants ", receive.counts[own]);
  std::vector<Phase> phases;
  phases.push_back(
      phase_of(all_to_all_round(send.counts, receive.counts), send.data, receive.data));
  return start("all_to_all", std::move(phases));
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
