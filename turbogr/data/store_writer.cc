#include "turbogr/data/store_writer.h"

#include <algorithm>
#include <limits>

#include "turbogr/core/check.h"

namespace turbogr::data {
namespace {

// Column names hold what users call things; file names hold letters that every system allows.
std::string file_name(const std::string& column) {
  std::string name;
  for (const char c : column) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-';
    name += plain ? c : '_';
  }
  return name + ".bin";
}

}  // namespace

StoreWriter::StoreWriter(const std::filesystem::path& target, StoreSchema schema, bool overwrite)
    : StoreWriter(PartialFolder(target, overwrite), std::move(schema)) {}

StoreWriter::StoreWriter(PartialFolder folder, StoreSchema schema)
    : folder_(std::move(folder)),
      schema_(std::move(schema)),
      wide_items_(schema_.num_items > std::numeric_limits<std::int32_t>::max()) {
  TGR_CHECK(schema_.num_items >= 0, "a store cannot have ", schema_.num_items, " items");
  TGR_CHECK(schema_.signals.size() <= 32, "a store keeps 32 signals at most, not ",
            schema_.signals.size());
  if (schema_.unmet_items) met_.resize(static_cast<std::size_t>(schema_.num_items));
  offsets_ = add_column("user_offsets", "int64");
  items_ = add_column("items", wide_items_ ? "int64" : "int32");
  if (schema_.time_unit != TimeUnit::kNone) times_ = add_column("times", "int64");
  if (!schema_.signals.empty()) {
    signals_ = add_column("signals", schema_.signals.size() > 16 ? "uint32" : "uint16");
  }
  for (const std::string& name : schema_.numbers) {
    numbers_.push_back(add_column("number:" + name, "float32"));
  }
  user_ids_ = open_ids(schema_.user_ids, "user");
  item_ids_ = open_ids(schema_.item_ids, "item");
  offsets_->file.append_value(std::int64_t{0});
}

StoreWriter::Column* StoreWriter::add_column(const std::string& name, const std::string& type,
                                             std::size_t buffer_bytes) {
  // Names that differ in letters a file name cannot have, such as all of another alphabet, get
  // numbers; the manifest says which file is whose.
  std::string file = file_name(name);
  const auto taken = [&](const auto& column) { return column->file.path().filename() == file; };
  for (int number = 2; std::any_of(columns_.begin(), columns_.end(), taken); ++number) {
    file = file_name(name + "_" + std::to_string(number));
  }
  for (const auto& column : columns_) {
    TGR_CHECK(column->name != name, "there are two columns '", name, "'; rename one");
  }
  columns_.push_back(
      std::unique_ptr<Column>(new Column{name, type, FileWriter(folder() / file, buffer_bytes)}));
  return columns_.back().get();
}

StoreWriter::Ids StoreWriter::open_ids(IdKind kind, const char* whose) {
  Ids ids;
  ids.kind = kind;
  ids.whose = whose;
  const std::string prefix = whose;
  if (kind == IdKind::kInt64) ids.values = add_column(prefix + "_ids", "int64");
  if (kind == IdKind::kString) {
    ids.values = add_column(prefix + "_id_offsets", "int64");
    ids.text = add_column(prefix + "_id_text", "bytes");
    ids.values->file.append_value(std::int64_t{0});
  }
  return ids;
}

void StoreWriter::add_id(Ids& ids, std::int64_t id) {
  TGR_CHECK(ids.kind == IdKind::kInt64, ids.whose, " ids are of kind ", name_of(ids.kind),
            ", not int64");
  TGR_CHECK(ids.count == 0 || id > ids.last_number, ids.whose, " id ", id, " comes after ",
            ids.last_number, "; ids must rise");
  ids.last_number = id;
  ids.values->file.append_value(id);
  ++ids.count;
}

void StoreWriter::add_id(Ids& ids, std::string_view id) {
  TGR_CHECK(ids.kind == IdKind::kString, ids.whose, " ids are of kind ", name_of(ids.kind),
            ", not string");
  TGR_CHECK(ids.count == 0 || id > ids.last_text, ids.whose, " id '", id, "' comes after '",
            ids.last_text, "'; ids must rise");
  ids.last_text = id;
  ids.text->file.append(id.data(), id.size());
  ids.values->file.append_value(ids.text->file.bytes());
  ++ids.count;
}

void StoreWriter::close_user(std::int64_t event) {
  if (num_users_ > 0) offsets_->file.append_value(event);
}

void StoreWriter::begin_user() {
  TGR_CHECK(schema_.user_ids == IdKind::kRange, "user ids are of kind ", name_of(schema_.user_ids),
            "; give this user's");
  close_user(num_events_);
  begun_.push_back(num_events_);
  ++num_users_;
}

void StoreWriter::begin_user(std::int64_t id) { begin_user_at(num_events_, id); }

void StoreWriter::begin_user(std::string_view id) { begin_user_at(num_events_, id); }

void StoreWriter::begin_user_at(std::int64_t event, std::int64_t id) {
  add_id(user_ids_, id);
  close_user(event);
  begun_.push_back(event);
  ++num_users_;
}

void StoreWriter::begin_user_at(std::int64_t event, std::string_view id) {
  add_id(user_ids_, id);
  close_user(event);
  begun_.push_back(event);
  ++num_users_;
}

void StoreWriter::check_sizes(const Events& events) const {
  const std::size_t count = events.items.size();
  TGR_CHECK(num_users_ > 0, "begin a user before adding events");
  TGR_CHECK(events.times.size() == (times_ != nullptr ? count : 0), "got ", events.times.size(),
            " times for ", count, " events of a store with time unit ", name_of(schema_.time_unit));
  TGR_CHECK(events.signals.size() == (signals_ != nullptr ? count : 0), "got ",
            events.signals.size(), " signal masks for ", count, " events and ",
            schema_.signals.size(), " signals");
  TGR_CHECK(events.numbers.size() == numbers_.size(), "got ", events.numbers.size(),
            " columns of numbers, wanted ", numbers_.size());
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    TGR_CHECK(events.numbers[i].size() == count, "got ", events.numbers[i].size(), " values of '",
              schema_.numbers[i], "' for ", count, " events");
  }
}

void StoreWriter::write_items(std::span<const std::int64_t> items) {
  for (const std::int64_t item : items) {
    TGR_CHECK(item >= 0 && item < schema_.num_items, "item index ", item, " is not one of ",
              schema_.num_items);
    if (!met_.empty()) met_[static_cast<std::size_t>(item)] = true;
    if (wide_items_) {
      items_->file.append_value(item);
    } else {
      items_->file.append_value(static_cast<std::int32_t>(item));
    }
  }
}

void StoreWriter::write_times(std::span<const std::int64_t> times) {
  std::size_t user = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    for (; user < begun_.size() && begun_[user] == num_events_ + static_cast<std::int64_t>(i);
         ++user) {
      last_time_ = std::numeric_limits<std::int64_t>::min();
    }
    TGR_CHECK(times[i] >= last_time_, "time ", times[i], " comes after ", last_time_,
              " in one user's history; events go oldest first");
    last_time_ = times[i];
  }
  times_->file.append(times.data(), times.size_bytes());
}

void StoreWriter::write_signals(std::span<const std::uint32_t> signals) {
  for (const std::uint32_t bits : signals) {
    signals_of_any_ |= bits;
    signals_of_all_ &= bits;
  }
  if (schema_.signals.size() > 16) {
    signals_->file.append(signals.data(), signals.size_bytes());
    return;
  }
  for (const std::uint32_t bits : signals) {
    signals_->file.append_value(static_cast<std::uint16_t>(bits));
  }
}

void StoreWriter::add_events(const Events& events) {
  check_sizes(events);
  write_items(events.items);
  if (times_ != nullptr) write_times(events.times);
  if (signals_ != nullptr) write_signals(events.signals);
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    numbers_[i]->file.append(events.numbers[i].data(), events.numbers[i].size_bytes());
  }
  num_events_ += static_cast<std::int64_t>(events.items.size());
  if (!events.items.empty()) begun_.clear();
}

void StoreWriter::add_histories(ThreadPool& pool, const Events& events) {
  check_sizes(events);
  const std::int64_t fixed = 3;
  parallel_for(pool, fixed + static_cast<std::int64_t>(numbers_.size()),
               [&](std::int64_t column, int) {
                 if (column == 0 && times_ != nullptr) write_times(events.times);
                 if (column == 1) write_items(events.items);
                 if (column == 2 && signals_ != nullptr) write_signals(events.signals);
                 if (column < fixed) return;
                 const auto i = static_cast<std::size_t>(column - fixed);
                 numbers_[i]->file.append(events.numbers[i].data(), events.numbers[i].size_bytes());
               });
  num_events_ += static_cast<std::int64_t>(events.items.size());
  if (!events.items.empty()) begun_.clear();
}

void StoreWriter::add_user(const Events& events) {
  begin_user();
  add_events(events);
}

void StoreWriter::add_user(std::int64_t id, const Events& events) {
  begin_user(id);
  add_events(events);
}

void StoreWriter::add_user(std::string_view id, const Events& events) {
  begin_user(id);
  add_events(events);
}

void StoreWriter::add_item_id(std::int64_t id) { add_id(item_ids_, id); }

void StoreWriter::add_item_id(std::string_view id) { add_id(item_ids_, id); }

FeatureWriter& StoreWriter::add_feature(Feature feature) {
  // Small buffers: there may be hundreds of these files, and --memory does not know of them.
  const auto open = [&](std::string_view part, const char* type) {
    return &add_column(feature.column(part), type, 1 << 14)->file;
  };
  FeatureFiles files;
  files.values = open("", feature.kind == FeatureKind::kNumber ? "float32" : "int32");
  if (feature.kind == FeatureKind::kBag) files.offsets = open("offsets", "int64");
  if (feature.has_vocabulary()) {
    files.text_offsets = open("text_offsets", "int64");
    files.text = open("text", "bytes");
  }
  features_.push_back(std::make_unique<FeatureWriter>(std::move(feature), files));
  return *features_.back();
}

WrittenIds StoreWriter::written_ids(FeatureOwner owner) {
  TGR_CHECK(owner != FeatureOwner::kEvent, "events have no ids");
  const Ids& ids = owner == FeatureOwner::kUser ? user_ids_ : item_ids_;
  WrittenIds written;
  if (ids.kind == IdKind::kRange) {
    written.ids = IdMap::range(owner == FeatureOwner::kUser ? num_users_ : schema_.num_items);
    return written;
  }
  ids.values->file.flush();
  written.values = MappedFile(ids.values->file.path());
  if (ids.kind == IdKind::kInt64) {
    written.ids = IdMap::integers(written.values.as<std::int64_t>());
    return written;
  }
  ids.text->file.flush();
  written.text = MappedFile(ids.text->file.path());
  written.ids = IdMap::strings(written.values.as<std::int64_t>(), written.text.as<char>());
  return written;
}

void StoreWriter::finish() {
  TGR_CHECK(item_ids_.kind == IdKind::kRange || item_ids_.count == schema_.num_items, "got ",
            item_ids_.count, " item ids for ", schema_.num_items, " items");
  close_user(num_events_);
  Manifest manifest{.users = num_users_,
                    .items = schema_.num_items,
                    .events = num_events_,
                    .time_unit = schema_.time_unit,
                    .user_ids = schema_.user_ids,
                    .item_ids = schema_.item_ids,
                    .signals = schema_.signals,
                    .numbers = schema_.numbers,
                    .columns = {},
                    .side_tables = side_tables_,
                    .features = {},
                    .feature_tables = feature_tables_,
                    .items_without_events = std::count(met_.begin(), met_.end(), false)};
  for (const auto& feature : features_) {
    manifest.features.push_back(feature->finish(manifest.rows_of(feature->owner())));
  }
  for (const auto& column : columns_) {
    column->file.close(/*sync=*/true);
    manifest.columns.push_back({.name = column->name,
                                .file = column->file.path().filename().string(),
                                .type = column->type,
                                .bytes = column->file.bytes(),
                                .checksum = column->file.checksum()});
  }
  const std::string text = manifest.to_json();
  FileWriter file(folder() / "manifest.json");
  file.append(text.data(), text.size());
  file.close(/*sync=*/true);
  folder_.publish();
}

}  // namespace turbogr::data
