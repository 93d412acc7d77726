// Writes a sequence store, users one after the other in ascending order of their ids. Nothing can
// be opened before finish(); without it (an error, an interrupt) everything written goes.
//
//   StoreWriter writer("out.store", {.time_unit = TimeUnit::kSeconds, .num_items = 3});
//   writer.add_user({.items = items, .times = times});   // ids of kind kRange need no mention
//   writer.finish();
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/core/thread_pool.h"
#include "turbogr/data/features/feature_writer.h"
#include "turbogr/data/file.h"
#include "turbogr/data/id_map.h"
#include "turbogr/data/manifest.h"
#include "turbogr/data/partial_folder.h"

namespace turbogr::data {

struct StoreSchema {
  TimeUnit time_unit = TimeUnit::kNone;
  std::int64_t num_items = 0;
  IdKind user_ids = IdKind::kRange;
  IdKind item_ids = IdKind::kRange;
  std::vector<std::string> signals;  // 32 at most
  std::vector<std::string> numbers;  // names of float columns
  bool unmet_items = false;          // there may be items without events: the manifest counts them
};

// Events of one user, oldest first. Spans the schema does not ask for stay empty.
struct Events {
  std::span<const std::int64_t> items;  // dense indices
  std::span<const std::int64_t> times;
  std::span<const std::uint32_t> signals;
  std::vector<std::span<const float>> numbers;  // one a name
};

// Ids that a store under work has got so far.
struct WrittenIds {
  MappedFile values;
  MappedFile text;
  IdMap ids;
};

class StoreWriter {
 public:
  StoreWriter(const std::filesystem::path& target, StoreSchema schema, bool overwrite = false);
  // Into a folder that work has begun in already.
  StoreWriter(PartialFolder folder, StoreSchema schema);

  // Starts the next user; its id rises from call to call. The kind must be the schema's.
  void begin_user();
  void begin_user(std::int64_t id);
  void begin_user(std::string_view id);
  // Appends to the user begun last, which may be done in pieces. Throws when times fall or an item
  // is out of range.
  void add_events(const Events& events);

  // Many users at once: first begin_user_at for each of them, at the number its first event is
  // going to have in the store, then add_histories with the events of all, which may be cut
  // anywhere. Columns are written side by side.
  void begin_user_at(std::int64_t event, std::int64_t id);
  void begin_user_at(std::int64_t event, std::string_view id);
  void add_histories(ThreadPool& pool, const Events& events);

  void add_user(const Events& events);
  void add_user(std::int64_t id, const Events& events);
  void add_user(std::string_view id, const Events& events);

  // num_items of them, rising, at any time before finish(); none for IdKind::kRange.
  void add_item_id(std::int64_t id);
  void add_item_id(std::string_view id);

  // A feature whose rows are going to be added one by one, in the order of the items, users or
  // events; it lives as long as this writer.
  FeatureWriter& add_feature(Feature feature);
  void add_feature_table(const FeatureTable& table) { feature_tables_.push_back(table); }

  // Those of all users or items begun or added before, for tables that speak of them.
  WrittenIds written_ids(FeatureOwner owner);

  // Takes over a file that lies in folder() already, whole and on the disk.
  void adopt_side_table(SideTable table) { side_tables_.push_back(std::move(table)); }

  void finish();

  const std::filesystem::path& folder() const { return folder_.path(); }
  std::int64_t num_users() const { return num_users_; }
  std::int64_t num_events() const { return num_events_; }
  // Bits of the signals that some event has, and that every event has.
  std::uint32_t signals_of_any() const { return signals_of_any_; }
  std::uint32_t signals_of_all() const { return signals_of_all_; }

 private:
  struct Column {
    std::string name;
    std::string type;
    FileWriter file;
  };
  struct Ids {
    IdKind kind = IdKind::kRange;
    const char* whose = "";
    Column* values = nullptr;  // int64 ids, or offsets of strings
    Column* text = nullptr;
    std::int64_t count = 0;
    std::int64_t last_number = 0;
    std::string last_text;
  };

  Column* add_column(const std::string& name, const std::string& type,
                     std::size_t buffer_bytes = 1 << 18);
  Ids open_ids(IdKind kind, const char* whose);
  static void add_id(Ids& ids, std::int64_t id);
  static void add_id(Ids& ids, std::string_view id);
  void close_user(std::int64_t event);
  void check_sizes(const Events& events) const;
  void write_items(std::span<const std::int64_t> items);
  void write_times(std::span<const std::int64_t> times);
  void write_signals(std::span<const std::uint32_t> signals);

  PartialFolder folder_;
  StoreSchema schema_;
  std::vector<std::unique_ptr<Column>> columns_;
  Column* offsets_ = nullptr;
  Column* items_ = nullptr;
  Column* times_ = nullptr;
  Column* signals_ = nullptr;
  std::uint32_t signals_of_any_ = 0, signals_of_all_ = ~0u;
  std::vector<Column*> numbers_;
  Ids user_ids_;
  Ids item_ids_;
  std::vector<SideTable> side_tables_;
  std::vector<std::unique_ptr<FeatureWriter>> features_;
  std::vector<FeatureTable> feature_tables_;
  bool wide_items_ = false;
  std::vector<bool> met_;  // which items have events; empty where all have
  std::int64_t num_users_ = 0;
  std::int64_t num_events_ = 0;
  std::int64_t last_time_ = 0;  // before the next event, of its user
  // Users begun whose first events are to come.
  std::vector<std::int64_t> begun_;
};

}  // namespace turbogr::data
