#include "turbogr/data/row_numbering.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

constexpr std::uint32_t kUnknown = 0xffffffffu;

}  // namespace

IndexFile::IndexFile(EventRows& rows, const SortedIds& ids, std::size_t field,
                     std::filesystem::path path, std::size_t table_bytes)
    : path_(std::move(path)), file_(path_, O_RDWR | O_CREAT | O_TRUNC) {
  TGR_CHECK(ids.count < kUnknown, ids.count, " distinct ids; 4294967294 is the most");
  const std::size_t stride = rows.layout().stride();
  IdLookup lookup(ids, table_bytes);
  std::vector<std::uint32_t> block;
  for (std::int64_t window = 0; window < lookup.num_windows(); ++window) {
    if (window > 0) lookup.load(window);
    rows.for_each_block([&](const std::byte* first, std::size_t count, std::int64_t first_row) {
      check_interrupt();
      block.assign(count, kUnknown);
      if (window > 0) read(first_row, block);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t index = lookup.find(load_field<std::int64_t>(first + i * stride, field));
        if (index < 0) continue;
        // The bitmap answers in every window; a listed key that two windows know is two ids.
        TGR_CHECK(block[i] == kUnknown || block[i] == static_cast<std::uint32_t>(index),
                  "two string ids share a hash and cannot be told apart; change the spelling of ",
                  "one of those at places ", block[i], " and ", index, " in byte order");
        block[i] = static_cast<std::uint32_t>(index);
      }
      if (::lseek(file_.get(), first_row * 4, SEEK_SET) < 0)
        throw_file_error("write", path_, errno);
      write_all(file_.get(), std::as_bytes(std::span(block)), path_);
    });
  }
}

IndexFile::~IndexFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void IndexFile::read(std::int64_t first_row, std::span<std::uint32_t> out) const {
  read_at(file_.get(), std::as_writable_bytes(out), first_row * 4, path_);
}

void RowNumbering::number_in_memory(const SortedIds& ids, std::size_t field) {
  // One window: a table of 16 / 0.75 bytes an id, and no more ids than rows, is never larger than
  // the 24 bytes a row that sorting will take in its place.
  const IdLookup lookup(ids, std::numeric_limits<std::size_t>::max());
  TGR_CHECK(lookup.num_windows() == 1, ids.count, " distinct ids are more than one table holds; ",
            "give less --memory, so that they are numbered on the disk");
  const std::size_t stride = log_.rows->layout().stride();
  check_interrupt();
  log_.rows->for_each_block_at_once(pool_, [&](std::byte* rows, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* row = rows + i * stride;
      store_field(row, field, lookup.find(load_field<std::int64_t>(row, field)));
    }
  });
}

// Bitmaps need no table, so one look at a row does for both ids.
void RowNumbering::number_both_in_memory() {
  const std::size_t stride = log_.rows->layout().stride();
  check_interrupt();
  log_.rows->for_each_block_at_once(pool_, [&](std::byte* rows, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* row = rows + i * stride;
      const auto user = load_field<std::int64_t>(row, RowLayout::kUser);
      const auto item = load_field<std::int64_t>(row, RowLayout::kItem);
      store_field(row, RowLayout::kUser, log_.users.index_of_bit(user));
      store_field(row, RowLayout::kItem, log_.items.index_of_bit(item));
    }
  });
}

void RowNumbering::scan(const PairBlock& block) {
  const std::size_t stride = log_.rows->layout().stride();
  std::vector<std::uint32_t> users;
  std::vector<std::uint32_t> items;
  log_.rows->for_each_block([&](const std::byte* rows, std::size_t count, std::int64_t first) {
    check_interrupt();
    users.resize(count);
    items.resize(count);
    if (user_file_ && item_file_) {
      user_file_->read(first, users);
      item_file_->read(first, items);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const std::byte* row = rows + i * stride;
        users[i] = static_cast<std::uint32_t>(load_field<std::int64_t>(row, RowLayout::kUser));
        items[i] = static_cast<std::uint32_t>(load_field<std::int64_t>(row, RowLayout::kItem));
      }
    }
    block(users, items);
  });
}

void RowNumbering::release() {
  user_lookup_.reset();
  item_lookup_.reset();
  user_file_.reset();
  item_file_.reset();
}

void RowNumbering::number() {
  if (log_.rows->in_memory()) {
    if (log_.users.num_listed + log_.items.num_listed == 0) return number_both_in_memory();
    number_in_memory(log_.users, RowLayout::kUser);
    number_in_memory(log_.items, RowLayout::kItem);
    return;
  }
  // The filter reads the indices again and again, unless dropping repeats leaves rows that have
  // them.
  const bool read_often = filtering() && options_.repeats == Repeats::kKeep;
  const auto fits = [&](const SortedIds& ids) {
    return !read_often && IdLookup::windows_for(ids, plan_.lookup) == 1;
  };
  if (!fits(log_.users)) {
    user_file_.emplace(*log_.rows, log_.users, RowLayout::kUser, folder_ / "user_index.tmp",
                       plan_.working);
  }
  if (!fits(log_.items)) {
    item_file_.emplace(*log_.rows, log_.items, RowLayout::kItem, folder_ / "item_index.tmp",
                       plan_.working);
  }
  if (!user_file_) user_lookup_.emplace(log_.users, plan_.lookup);
  if (!item_file_) item_lookup_.emplace(log_.items, plan_.lookup);
}

void RowNumbering::find_core() {
  if (!filtering()) return;
  TGR_CHECK(std::max(log_.users.count, log_.items.count) < kUnknown,
            "the filter takes 4294967294 distinct ids at most");
  core_ =
      data::find_core([&](const PairBlock& block) { scan(block); }, log_.users.count,
                      log_.items.count, options_.min_user, options_.min_item, plan_.working / 2);
  if (log_.table_items) keep_items_of_tables();
}

// What events they had is gone with the filter. Both lists are in ascending order.
void RowNumbering::keep_items_of_tables() {
  core_->items_with_events = core_->items;
  const SortedIds& kept = *log_.table_items;
  IdStream all_ids(log_.items), kept_ids(kept);
  std::int64_t index = 0;
  const auto find = [&](auto&& next_of) {
    for (std::int64_t i = 0; i < kept.count; ++i) {
      const auto wanted = next_of(kept_ids);
      while (next_of(all_ids) != wanted) ++index;
      core_->items.keep(index++);
    }
  };
  if (kept.kind == IdKind::kString) {
    find([](IdStream& ids) { return ids.next_string(); });
  } else {
    find([](IdStream& ids) { return ids.next_integer(); });
  }
  core_->items.number();
}

}  // namespace turbogr::data
