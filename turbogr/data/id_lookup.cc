#include "turbogr/data/id_lookup.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// Any number of slots, not only powers of two: the budget is used to the last byte.
std::size_t place_of(std::int64_t key, std::size_t num_slots) {
  const auto bits = static_cast<std::uint64_t>(key);
  const std::uint64_t mixed = ((bits ^ (bits >> 32)) * 0x9E3779B97F4A7C15u) >> 32;
  return static_cast<std::size_t>((mixed * num_slots) >> 32);
}

}  // namespace

std::int64_t IdLookup::windows_for(const SortedIds& ids, std::size_t budget_bytes) {
  // Three quarters full at most.
  const std::size_t most_slots =
      std::min<std::size_t>(std::max<std::size_t>(budget_bytes, 1024) / sizeof(Slot), 0xffffffffu);
  const auto most = static_cast<std::int64_t>(most_slots / 4 * 3);
  return std::max<std::int64_t>((ids.num_listed + most - 1) / most, 1);
}

IdLookup::IdLookup(const SortedIds& ids, std::size_t budget_bytes)
    : ids_(&ids), num_windows_(windows_for(ids, budget_bytes)) {
  window_size_ = (ids.num_listed + num_windows_ - 1) / num_windows_;
  load(0);
}

void IdLookup::load(std::int64_t window) {
  const std::int64_t begin = window * window_size_;
  const std::int64_t end = std::min(begin + window_size_, ids_->num_listed);
  const auto wanted = static_cast<std::size_t>(window_size_ + window_size_ / 3 + 1);
  slots_.assign(ids_->num_listed > 0 ? wanted : 1, {});
  if (ids_->num_listed == 0) return;
  const std::size_t size = slots_.size();
  const FileHandle file(ids_->keys_file, O_RDONLY);
  std::vector<std::int64_t> block(1 << 14);
  for (std::int64_t first = begin; first < end; first += static_cast<std::int64_t>(block.size())) {
    block.resize(
        static_cast<std::size_t>(std::min(static_cast<std::int64_t>(block.size()), end - first)));
    read_at(file.get(), std::as_writable_bytes(std::span(block)), first * 8, ids_->keys_file);
    for (std::size_t i = 0; i < block.size(); ++i) {
      std::size_t at = place_of(block[i], size);
      for (; slots_[at].index >= 0; at = at + 1 == size ? 0 : at + 1) {
        TGR_CHECK(slots_[at].key != block[i],
                  "two string ids share a hash and cannot be told apart; change the spelling of "
                  "one of the ids at places ",
                  slots_[at].index, " and ", first + static_cast<std::int64_t>(i),
                  " in byte order");
      }
      slots_[at] = {block[i], ids_->index_of_listed(first + static_cast<std::int64_t>(i))};
    }
  }
}

std::int64_t IdLookup::find_listed(std::int64_t key) const {
  const std::size_t size = slots_.size();
  for (std::size_t at = place_of(key, size); slots_[at].index >= 0;
       at = at + 1 == size ? 0 : at + 1) {
    if (slots_[at].key == key) return slots_[at].index;
  }
  return -1;
}

IdStream::IdStream(const SortedIds& ids) : ids_(&ids) {
  if (!ids.bits.empty()) left_ = ids.bits[0];
  if (ids.num_listed == 0) return;
  const auto& path = ids.kind == IdKind::kString ? ids.text_file : ids.keys_file;
  file_ = FileHandle(path, O_RDONLY);
  reader_ = std::make_unique<RunReader>(
      file_.get(), path, 0, static_cast<std::int64_t>(std::filesystem::file_size(path)), 1 << 16);
}

std::int64_t IdStream::next_integer() {
  const std::int64_t place = place_++;
  if (place < ids_->num_negative || place >= ids_->num_negative + ids_->num_bits) {
    std::int64_t id = 0;
    std::memcpy(&id, reader_->take(sizeof id), sizeof id);
    return id;
  }
  while (left_ == 0) left_ = ids_->bits[++word_];
  const int bit = std::countr_zero(left_);
  left_ &= left_ - 1;
  return static_cast<std::int64_t>(64 * word_) + bit;
}

const std::string& IdStream::next_string() {
  std::uint32_t length = 0;
  std::memcpy(&length, reader_->take(sizeof length), sizeof length);
  text_.assign(reinterpret_cast<const char*>(reader_->take(length)), length);
  return text_;
}

}  // namespace turbogr::data
