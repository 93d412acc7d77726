#include "turbogr/data/features/table_features.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "turbogr/core/check.h"
#include "turbogr/data/event_sort.h"
#include "turbogr/data/features/feature_text.h"
#include "turbogr/data/features/vocabulary.h"
#include "turbogr/data/field.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

// One feature while its tables are read.
struct Reading {
  FeatureColumnKind column;
  std::optional<Vocabulary> values;
  std::int64_t unparsable = 0;
  std::string first_unparsable;  // where, and what stands there
};

// Rows of the tables use the sort's layout: the item or user it speaks of as `user`, the place of
// its bags in a file of their own as `item`, a bit a feature the table has as `signals`, and then a
// code, a number or the length of a bag for each.
constexpr std::size_t kIndex = RowLayout::kUser;
constexpr std::size_t kBags = RowLayout::kItem;
constexpr std::size_t kMask = RowLayout::kSignals;

class TableFeatures {
 public:
  TableFeatures(ThreadPool& pool, StoreWriter& writer, FeatureOwner owner,
                const std::vector<FeatureRequest>& requests, std::size_t memory_bytes,
                const fs::path& folder)
      : writer_(writer),
        requests_(requests),
        memory_(memory_bytes),
        bags_path_(folder / "bags.tmp"),
        layout_{.signals = true, .num_numbers = requests.size()},
        ids_(writer.written_ids(owner)),
        bags_(std::make_unique<FileWriter>(bags_path_)),
        sort_(pool, layout_, memory_bytes / 2 / (layout_.stride() + 24),
              {.num_users = ids_.ids.size(), .first_time = 0, .last_time = 0},
              folder / "features.tmp", memory_bytes / 2),
        readings_(requests.size()),
        current_(requests.size()),
        bag_of_(requests.size()) {
    about_.owner = owner;
  }

  void settle(std::vector<std::unique_ptr<TableReader>>& tables, std::vector<std::string>& remarks);
  void read(TableReader& table);
  void write(std::vector<std::string>& remarks);

 private:
  std::uint32_t encode(Reading& reading, std::string_view field, const TableReader& table,
                       std::int64_t line);
  void check_memory(const Reading& reading, const FeatureRequest& request) const;
  // Of the kind that the store's are; no such item or user can be there else.
  bool is_id(std::string_view text) const {
    std::int64_t number = 0;
    return ids_.ids.kind() == IdKind::kString || parse_integer(text, number) == FieldError::kNone;
  }
  void apply(const std::byte* row);
  void emit();
  void emit_missing_up_to(std::int64_t index);
  void remark(std::vector<std::string>& remarks) const;

  StoreWriter& writer_;
  const std::vector<FeatureRequest>& requests_;
  std::size_t memory_;
  fs::path bags_path_;
  RowLayout layout_;
  WrittenIds ids_;
  std::unique_ptr<FileWriter> bags_;
  FileHandle bags_file_;
  EventSort sort_;
  std::vector<Reading> readings_;
  FeatureTable about_;

  std::vector<std::int32_t> codes_;  // of the bags of the row at hand
  // While writing: the item or user at hand, what is known of it, and which of it from the tables.
  std::vector<FeatureWriter*> writers_;
  std::int64_t index_ = -1;
  std::int64_t next_ = 0;
  std::uint32_t known_ = 0;
  std::vector<std::uint32_t> current_;
  std::vector<std::vector<std::int32_t>> bag_of_;
};

void TableFeatures::settle(std::vector<std::unique_ptr<TableReader>>& tables,
                           std::vector<std::string>& remarks) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [&](const auto& one) { return one->columns()[i] >= 0; });
    const int column = (*table)->columns()[i];
    const std::vector<std::string> sample = (*table)->sample(column);
    Reading& reading = readings_[i];
    const std::string_view type = (*table)->type_of(column);
    reading.column = settle_kind(requests_[i], type, sample);
    if (reading.column.kind != FeatureKind::kNumber) reading.values.emplace();
    if (type == "list") continue;  // written with that very separator
    std::string words = words_on_separator(requests_[i], about_.owner, reading.column, sample);
    if (!words.empty()) remarks.push_back(std::move(words));
  }
}

// Vocabularies stay in memory while the tables are read; all of them together have their half.
void TableFeatures::check_memory(const Reading& reading, const FeatureRequest& request) const {
  std::size_t bytes = 0;
  for (const Reading& other : readings_) bytes += other.values ? other.values->bytes() : 0;
  TGR_CHECK(bytes <= std::max<std::size_t>(memory_ / 2, std::size_t{1} << 16),
            name_of(about_.owner), " feature '", request.name, "': past ", reading.values->size(),
            " distinct values --memory holds no more; give more memory, or leave the feature out");
}

std::uint32_t TableFeatures::encode(Reading& reading, std::string_view field,
                                    const TableReader& table, std::int64_t line) {
  field = trimmed(field);
  if (reading.column.kind == FeatureKind::kCategory) {
    return field.empty() ? 0u : static_cast<std::uint32_t>(reading.values->code_of(field));
  }
  if (reading.column.kind == FeatureKind::kBag) {
    const std::size_t before = codes_.size();
    for_each_value(field, reading.column.separator, [&](std::string_view value) {
      codes_.push_back(reading.values->code_of(value));
    });
    return static_cast<std::uint32_t>(codes_.size() - before);
  }
  float number = 0;
  if (parse_float(field, number) != FieldError::kNone) {
    number = std::numeric_limits<float>::quiet_NaN();
    if (reading.unparsable++ == 0) {
      reading.first_unparsable =
          fmt::format("'{}' in line {} of '{}'", printable(field, 40), line, table.name());
    }
  }
  return std::bit_cast<std::uint32_t>(number);
}

void TableFeatures::read(TableReader& table) {
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (table.columns()[i] >= 0) mask |= std::uint32_t{1} << i;
  }
  if (mask == 0) return;  // a table that only goes along, e.g. one of titles
  std::vector<std::uint32_t> encoded(requests_.size());
  const auto use = [&](const CsvReader& reader) {
    ++about_.rows;
    codes_.clear();
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const int column = table.columns()[i];
      if (column < 0) continue;
      Reading& reading = readings_[i];
      const std::int32_t before = reading.values ? reading.values->size() : 0;
      encoded[i] =
          encode(reading, reader.fields()[static_cast<std::size_t>(column)], table, reader.line());
      if (reading.values && reading.values->size() > before) check_memory(reading, requests_[i]);
    }
    const std::optional<std::int64_t> index = ids_.ids.find(table.id());
    if (!index) {
      ++(is_id(table.id()) ? about_.without_events : about_.unreadable);
      return;
    }
    std::byte* row = sort_.add();
    store_field(row, kIndex, *index);
    store_field(row, kBags, bags_->bytes());
    store_field(row, RowLayout::kTime, std::int64_t{0});
    store_field(row, kMask, mask);
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      store_field(row, layout_.number(i), (mask >> i & 1u) != 0 ? encoded[i] : 0u);
    }
    bags_->append(codes_.data(), codes_.size() * sizeof(std::int32_t));
  };
  table.for_each_row(use, [&](const CsvReader& reader, BadRow) {
    about_.rows += reader.num_lines();
    about_.unreadable += reader.num_lines();
  });
}

void TableFeatures::apply(const std::byte* row) {
  const auto mask = load_field<std::uint32_t>(row, kMask);
  if ((mask & known_) != 0) ++about_.repeated;
  known_ |= mask;
  auto at = load_field<std::int64_t>(row, kBags);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if ((mask >> i & 1u) == 0) continue;
    current_[i] = load_field<std::uint32_t>(row, layout_.number(i));
    if (readings_[i].column.kind != FeatureKind::kBag) continue;
    bag_of_[i].resize(current_[i]);
    read_at(bags_file_.get(), std::as_writable_bytes(std::span(bag_of_[i])), at, bags_path_);
    at += static_cast<std::int64_t>(current_[i] * sizeof(std::int32_t));
  }
}

void TableFeatures::emit() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const bool known = (known_ >> i & 1u) != 0;
    if (readings_[i].column.kind == FeatureKind::kCategory) {
      writers_[i]->add_code(known ? static_cast<std::int32_t>(current_[i]) : 0);
    } else if (readings_[i].column.kind == FeatureKind::kNumber) {
      writers_[i]->add_number(known ? std::bit_cast<float>(current_[i])
                                    : std::numeric_limits<float>::quiet_NaN());
    } else {
      writers_[i]->add_bag(known ? std::span<const std::int32_t>(bag_of_[i])
                                 : std::span<const std::int32_t>());
    }
  }
  if (known_ == 0) ++about_.without_row;
  known_ = 0;
  ++next_;
}

void TableFeatures::emit_missing_up_to(std::int64_t index) {
  while (next_ < index) emit();
}

void TableFeatures::write(std::vector<std::string>& remarks) {
  bags_->close(/*sync=*/false);
  bags_file_ = FileHandle(bags_path_, O_RDONLY);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    writers_.push_back(&writer_.add_feature(
        {.name = requests_[i].name, .owner = about_.owner, .kind = readings_[i].column.kind}));
    writers_[i]->count_unparsable(readings_[i].unparsable);
    const std::int32_t values = readings_[i].values ? readings_[i].values->size() : 0;
    for (std::int32_t code = 1; code <= values; ++code) {
      writers_[i]->add_value(readings_[i].values->value(code));
    }
  }
  sort_.drain([&](const std::byte* row) {
    const auto index = load_field<std::int64_t>(row, kIndex);
    if (index != index_) {
      if (index_ >= 0) emit();
      emit_missing_up_to(index);
      index_ = index;
    }
    apply(row);
  });
  if (index_ >= 0) emit();
  emit_missing_up_to(ids_.ids.size());
  writer_.add_feature_table(about_);
  remark(remarks);
}

void TableFeatures::remark(std::vector<std::string>& remarks) const {
  const std::string_view owner = name_of(about_.owner);
  std::vector<std::string> parts;
  if (about_.without_events > 0) {
    parts.push_back(fmt::format("{} of {} rows speak of {}s without events and are left out",
                                about_.without_events, about_.rows, owner));
  }
  if (about_.without_row > 0) {
    parts.push_back(
        fmt::format("{} of {} {}s have no row", about_.without_row, ids_.ids.size(), owner));
  }
  if (about_.repeated > 0) {
    parts.push_back(
        fmt::format("{} rows repeat the id of another; the last one counts", about_.repeated));
  }
  if (about_.unreadable > 0) {
    parts.push_back(fmt::format("{} rows cannot be read", about_.unreadable));
  }
  if (!parts.empty()) {
    remarks.push_back(fmt::format("{} features: {}", owner, fmt::join(parts, "; ")));
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (readings_[i].unparsable == 0) continue;
    remarks.push_back(fmt::format(
        "{} feature {}: {} fields are no numbers and count as missing, the first {}", owner,
        requests_[i].name, readings_[i].unparsable, readings_[i].first_unparsable));
  }
}

}  // namespace

void write_table_features(ThreadPool& pool, StoreWriter& writer, FeatureOwner owner,
                          const std::vector<TableFile>& tables,
                          const std::vector<FeatureRequest>& requests, std::size_t memory_bytes,
                          const fs::path& folder, std::vector<std::string>& remarks) {
  if (requests.empty()) return;
  std::vector<std::unique_ptr<TableReader>> opened;
  std::vector<const TableReader*> seen;
  for (const TableFile& table : tables) {
    opened.push_back(std::make_unique<TableReader>(table, owner, requests));
    seen.push_back(opened.back().get());
  }
  check_features_found(seen, owner, requests);
  TableFeatures features(pool, writer, owner, requests, memory_bytes, folder);
  features.settle(opened, remarks);
  for (const auto& table : opened) features.read(*table);
  features.write(remarks);
}

}  // namespace turbogr::data
