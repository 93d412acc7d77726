#include "turbogr/data/history_writer.h"

#include <string_view>

#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kGatherPiece = 1 << 13;

}  // namespace

HistoryWriter::HistoryWriter(ThreadPool& pool, StoreWriter& writer, const ParsedLog& log,
                             const Survivors* users)
    : pool_(pool),
      writer_(writer),
      log_(log),
      users_(users),
      ids_(log.users),
      layout_(log.rows->layout()),
      numbers_(log.number_names.size()) {}

void HistoryWriter::add(const SortedRows& rows) {
  check_interrupt();
  gather(rows);
  begin_users(rows);
  events_.items = items_;
  events_.times = times_;
  events_.signals = signals_;
  events_.numbers.assign(numbers_.begin(), numbers_.end());
  writer_.add_histories(pool_, events_);
  for (std::size_t i = 0; i < log_.event_features->size(); ++i) {
    const std::size_t at = layout_.number(numbers_.size() + i);
    for (std::size_t row = 0; row < rows.count; ++row) {
      log_.event_features->write(i, load_field<std::uint32_t>(rows[row], at));
    }
  }
}

// Columns from rows, and where users begin.
void HistoryWriter::gather(const SortedRows& rows) {
  const bool timed = log_.time_unit != TimeUnit::kNone;
  const auto count = static_cast<std::int64_t>(rows.count);
  items_.resize(rows.count);
  times_.resize(timed ? rows.count : 0);
  signals_.resize(layout_.signals ? rows.count : 0);
  for (auto& numbers : numbers_) numbers.resize(rows.count);
  begins_.resize(static_cast<std::size_t>((count + kGatherPiece - 1) / kGatherPiece));
  parallel_ranges(pool_, count, kGatherPiece, [&](std::int64_t begin, std::int64_t end, int) {
    auto& begins = begins_[static_cast<std::size_t>(begin / kGatherPiece)];
    begins.clear();
    std::int64_t last = user_;
    if (begin > 0) {
      last = load_field<std::int64_t>(rows[static_cast<std::size_t>(begin - 1)], RowLayout::kUser);
    }
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      rows.prefetch(i + 8);
      const std::byte* row = rows[i];
      const auto user = load_field<std::int64_t>(row, RowLayout::kUser);
      if (user != last) begins.push_back(static_cast<std::uint32_t>(i));
      last = user;
      items_[i] = load_field<std::int64_t>(row, RowLayout::kItem);
      if (timed) times_[i] = load_field<std::int64_t>(row, RowLayout::kTime) / log_.time_divisor;
      if (layout_.signals) signals_[i] = load_field<std::uint32_t>(row, RowLayout::kSignals);
      for (std::size_t n = 0; n < numbers_.size(); ++n) {
        numbers_[n][i] = load_field<float>(row, layout_.number(n));
      }
    }
  });
}

void HistoryWriter::begin_users(const SortedRows& rows) {
  const std::int64_t first = writer_.num_events();
  for (const auto& begins : begins_) {
    for (const std::uint32_t begin : begins) begin_next_user(first + begin);
  }
  if (rows.count > 0) {
    user_ = load_field<std::int64_t>(rows[rows.count - 1], RowLayout::kUser);
  }
}

// Users come without gaps, so the next one's id is the next that survived.
void HistoryWriter::begin_next_user(std::int64_t event) {
  const bool strings = log_.users.kind == IdKind::kString;
  while (true) {
    const bool stays = users_ == nullptr || users_->has(next_id_);
    ++next_id_;
    if (strings) {
      const std::string& id = ids_.next_string();
      if (stays) return writer_.begin_user_at(event, std::string_view(id));
    } else {
      const std::int64_t id = ids_.next_integer();
      if (stays) return writer_.begin_user_at(event, id);
    }
  }
}

}  // namespace turbogr::data
