#include "turbogr/data/id_collector.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/run_reader.h"

namespace turbogr::data {
namespace {

std::uint64_t scatter(std::int64_t key) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15u;
  return mixed ^ (mixed >> 32);
}

struct IntegerCursor {
  RunReader reader;
  std::int64_t key = 0;

  bool advance() {
    const std::byte* at = reader.take(sizeof key);
    if (at != nullptr) std::memcpy(&key, at, sizeof key);
    return at != nullptr;
  }
  bool operator<(const IntegerCursor& other) const { return key < other.key; }
};

struct StringCursor {
  RunReader reader;
  std::string text;

  bool advance() {
    const std::byte* at = reader.take(sizeof(std::uint32_t));
    if (at == nullptr) return false;
    std::uint32_t length = 0;
    std::memcpy(&length, at, sizeof length);
    text.assign(reinterpret_cast<const char*>(reader.take(length)), length);
    return true;
  }
  bool operator<(const StringCursor& other) const { return text < other.text; }
};

template <class Cursor>
std::vector<Cursor> open_runs(const FileHandle& file, const std::filesystem::path& path,
                              const std::vector<std::int64_t>& ends, std::size_t budget) {
  const std::size_t buffer = std::clamp<std::size_t>(budget / ends.size(), 1 << 12, 1 << 20);
  std::vector<Cursor> cursors;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    cursors.push_back({RunReader(file.get(), path, begin, end, buffer), {}});
    begin = end;
  }
  return cursors;
}

}  // namespace

std::int64_t key_of(std::string_view id) {
  Checksum hash;
  hash.update(id.data(), id.size());
  return static_cast<std::int64_t>(hash.digest());
}

KeySet::KeySet(std::size_t budget_bytes) {
  // The table doubles until it fills half the budget (the copy while growing is the other half).
  const std::size_t most = std::bit_floor(std::max<std::size_t>(budget_bytes / 16, 64));
  limit_ = most / 8 * 5;
  slots_.resize(64);
}

bool KeySet::insert(std::int64_t key) {
  if (key == 0) return !std::exchange(has_zero_, true);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = scatter(key) & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    if (slots_[at] == key) return false;
  }
  slots_[at] = key;
  if (++count_ > slots_.size() / 8 * 5 && !full()) grow();
  return true;
}

void KeySet::grow() {
  std::vector<std::int64_t> old(2 * slots_.size());
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const std::int64_t key : old) {
    if (key == 0) continue;
    std::size_t at = scatter(key) & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = key;
  }
}

std::vector<std::int64_t> KeySet::take_sorted() {
  std::vector<std::int64_t> keys;
  keys.reserve(size());
  for (const std::int64_t key : slots_) {
    if (key != 0) keys.push_back(key);
  }
  if (has_zero_) keys.push_back(0);
  std::sort(keys.begin(), keys.end());
  std::fill(slots_.begin(), slots_.end(), 0);
  count_ = 0;
  has_zero_ = false;
  return keys;
}

StringSet::StringSet(std::size_t budget_bytes) : budget_(budget_bytes), slots_(64) {}

std::string_view StringSet::text_of(std::size_t place) const {
  const std::size_t end = place + 1 < begins_.size() ? begins_[place + 1] : text_.size();
  return {text_.data() + begins_[place], end - begins_[place]};
}

std::int64_t StringSet::insert(std::string_view id) {
  const std::int64_t key = key_of(id);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = scatter(key) & mask;
  for (; slots_[at].place != 0; at = (at + 1) & mask) {
    if (slots_[at].key != key) continue;
    const std::string_view other = text_of(slots_[at].place - 1);
    TGR_CHECK(other == id, "ids '", other, "' and '", id,
              "' share a hash and cannot be told apart; change the spelling of one");
    return key;
  }
  begins_.push_back(text_.size());
  text_ += id;
  slots_[at] = {key, static_cast<std::uint32_t>(begins_.size())};
  if (begins_.size() > slots_.size() / 8 * 5) grow();
  return key;
}

// Counts what sorted() and the growth of the table and the text may need for a moment.
bool StringSet::full() const {
  return 2 * text_.size() + 24 * begins_.size() + 32 * slots_.size() >= budget_ &&
         begins_.size() >= 16;
}

void StringSet::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.place == 0) continue;
    std::size_t at = scatter(slot.key) & mask;
    while (slots_[at].place != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

std::vector<std::string_view> StringSet::sorted() const {
  std::vector<std::string_view> ids;
  ids.reserve(begins_.size());
  for (std::size_t place = 0; place < begins_.size(); ++place) ids.push_back(text_of(place));
  std::sort(ids.begin(), ids.end());
  return ids;
}

void StringSet::clear() {
  slots_.assign(64, {});
  text_.clear();
  begins_.clear();
}

IdCollector::IdCollector(IdKind kind, std::filesystem::path stem, std::size_t budget_bytes)
    : kind_(kind),
      stem_(std::move(stem)),
      budget_(std::max<std::size_t>(budget_bytes, 1 << 12)),
      set_(kind == IdKind::kString ? 0 : budget_ / 2),
      strings_(budget_) {}

// It grows as ids do, up to a third of the budget (its ranks take half as much again).
bool IdCollector::grow_bitmap(std::int64_t id) {
  const std::uint64_t most = std::bit_floor(budget_ / 3) * 8;
  if (id < 0 || static_cast<std::uint64_t>(id) >= most) return false;
  num_bits_ = std::max<std::uint64_t>(std::bit_ceil(static_cast<std::uint64_t>(id) + 1), 4096);
  num_bits_ = std::min(num_bits_, most);
  bits_.resize(num_bits_ / 64);
  return true;
}

bool IdCollector::make_common(std::int64_t least, std::int64_t most) {
  if (kind_ != IdKind::kInt64 || least < 0) return false;
  return static_cast<std::uint64_t>(most) < num_bits_ || grow_bitmap(most);
}

void IdCollector::add_uncommon(std::int64_t id) {
  if (grow_bitmap(id)) {
    add_integer(id);
  } else if (set_.insert(id) && set_.full()) {
    flush();
  }
}

std::int64_t IdCollector::add_string(std::string_view id) {
  const std::int64_t key = strings_.insert(id);
  if (strings_.full()) flush();
  return key;
}

void IdCollector::flush() {
  check_interrupt();
  if (!runs_) runs_ = std::make_unique<FileWriter>(stem_.string() + ".runs", std::size_t{1} << 16);
  if (kind_ == IdKind::kString) {
    for (const std::string_view id : strings_.sorted()) {
      runs_->append_value(static_cast<std::uint32_t>(id.size()));
      runs_->append(id.data(), id.size());
    }
    strings_.clear();
  } else {
    const std::vector<std::int64_t> keys = set_.take_sorted();
    runs_->append(keys.data(), keys.size() * sizeof(std::int64_t));
  }
  run_ends_.push_back(runs_->bytes());
}

void IdCollector::merge_integers(SortedIds& ids) {
  const FileHandle file(runs_->path(), O_RDONLY);
  auto cursors = open_runs<IntegerCursor>(file, runs_->path(), run_ends_, budget_ / 2);
  FileWriter out(ids.keys_file);
  std::int64_t last = 0;
  merge_runs(cursors, [&](const IntegerCursor& cursor) {
    if (ids.num_listed > 0 && cursor.key == last) return;
    last = cursor.key;
    // An id may have been listed before the bitmap grew past it.
    if (static_cast<std::uint64_t>(last) < num_bits_) {
      bits_[static_cast<std::size_t>(last >> 6)] |= std::uint64_t{1} << (last & 63);
      return;
    }
    out.append_value(last);
    ++ids.num_listed;
    ids.num_negative += last < 0 ? 1 : 0;
  });
  out.close(/*sync=*/false);
}

void IdCollector::merge_strings(SortedIds& ids) {
  const FileHandle file(runs_->path(), O_RDONLY);
  auto cursors = open_runs<StringCursor>(file, runs_->path(), run_ends_, budget_ / 2);
  FileWriter keys(ids.keys_file);
  FileWriter texts(ids.text_file);
  std::string last;
  merge_runs(cursors, [&](const StringCursor& cursor) {
    if (ids.num_listed > 0 && cursor.text == last) return;
    last = cursor.text;
    keys.append_value(key_of(last));
    texts.append_value(static_cast<std::uint32_t>(last.size()));
    texts.append(last.data(), last.size());
    ++ids.num_listed;
  });
  keys.close(/*sync=*/false);
  texts.close(/*sync=*/false);
}

SortedIds IdCollector::finish() {
  if (set_.size() + strings_.size() > 0) flush();
  set_ = KeySet(0);
  strings_ = StringSet(0);
  SortedIds ids;
  ids.kind = kind_;
  ids.keys_file = stem_.string() + ".keys";
  ids.text_file = stem_.string() + ".text";
  if (runs_) {
    runs_->close(/*sync=*/false);
    if (kind_ == IdKind::kString) {
      merge_strings(ids);
    } else {
      merge_integers(ids);
    }
    std::filesystem::remove(runs_->path());
  }
  ids.bits = std::move(bits_);
  ids.rank.reserve(ids.bits.size());
  for (const std::uint64_t word : ids.bits) {
    ids.rank.push_back(static_cast<std::uint32_t>(ids.num_bits));
    ids.num_bits += std::popcount(word);
  }
  ids.count = ids.num_listed + ids.num_bits;
  return ids;
}

}  // namespace turbogr::data
