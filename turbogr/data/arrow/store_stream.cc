#include "turbogr/data/arrow/store_stream.h"

#include <cerrno>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/arrow_batch.h"

namespace turbogr::data {
namespace {

constexpr std::int64_t kRowsABatch = 1 << 16;
// No signal, number or feature is called so.
constexpr const char* kUser = "user of the store";
constexpr const char* kItem = "item of the store";
constexpr const char* kTime = "time of the store";

std::vector<Feature> event_features(const Store& store) {
  std::vector<Feature> features;
  for (const Feature& feature : store.manifest().features) {
    if (feature.owner == FeatureOwner::kEvent) features.push_back(feature);
  }
  return features;
}

ArrowBatch::Type id_type(const IdMap& ids) {
  return ids.kind() == IdKind::kString ? ArrowBatch::Type::kText : ArrowBatch::Type::kInt64;
}

std::vector<ArrowBatch::ColumnType> columns_of(const Store& store) {
  using Type = ArrowBatch::Type;
  std::vector<ArrowBatch::ColumnType> columns = {{kUser, id_type(store.user_ids())},
                                                 {kItem, id_type(store.item_ids())}};
  if (store.has_times()) columns.push_back({kTime, Type::kInt64});
  for (const std::string& name : store.manifest().signals) columns.push_back({name, Type::kInt64});
  for (const std::string& name : store.manifest().numbers) {
    columns.push_back({name, Type::kFloat32});
  }
  for (const Feature& feature : event_features(store)) {
    columns.push_back(
        {feature.name, feature.kind == FeatureKind::kNumber ? Type::kFloat32 : Type::kText});
  }
  return columns;
}

// A producer of batches; what the stream's private_data points to.
class StoreRows {
 public:
  explicit StoreRows(const Store& store) : store_(store), rows_(columns_of(store)) {
    for (const std::string& name : store.manifest().numbers) {
      numbers_.push_back(store.numbers(name));
    }
    for (const Feature& feature : event_features(store)) {
      TGR_CHECK(feature.kind != FeatureKind::kBag, "'", store.folder().string(), "': feature '",
                feature.name, "' of its events holds bags, and stores with those cannot be ",
                "merged; prepare all logs at once");
      features_.push_back(store.feature(FeatureOwner::kEvent, feature.name));
    }
  }

  void describe(ArrowSchema* out) const { rows_.describe(out); }

  // False at the end.
  bool next(ArrowArray* out) {
    while (user_ < store_.num_users() && rows_.rows() < kRowsABatch) add_user(user_++);
    if (rows_.rows() == 0) return false;
    rows_.hand_over(out);
    return true;
  }

  std::string error;  // words of the last call that failed

 private:
  void add_id(std::size_t column, const IdMap& ids, std::int64_t index) {
    if (ids.kind() == IdKind::kString) {
      rows_.add(column, ids.string(index));
    } else {
      rows_.add(column, ids.integer(index));
    }
  }

  void add_user(std::int64_t user) {
    const auto [first, count] = store_.events_of(user);
    items_.resize(static_cast<std::size_t>(count));
    signals_.resize(static_cast<std::size_t>(count));
    store_.read_items(first, items_);
    store_.read_signals(first, signals_);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto event = static_cast<std::size_t>(first + i);
      std::size_t column = 0;
      add_id(column++, store_.user_ids(), user);
      add_id(column++, store_.item_ids(), items_[static_cast<std::size_t>(i)]);
      if (store_.has_times()) rows_.add(column++, store_.times()[event]);
      for (std::size_t bit = 0; bit < store_.manifest().signals.size(); ++bit) {
        rows_.add(column++, std::int64_t{signals_[static_cast<std::size_t>(i)] >> bit & 1u});
      }
      for (const std::span<const float> numbers : numbers_) rows_.add(column++, numbers[event]);
      for (const FeatureColumn& feature : features_) {
        if (feature.about.kind == FeatureKind::kNumber) {
          rows_.add(column++, feature.numbers[event]);
        } else {
          rows_.add(column++, feature.value(feature.codes[event]));
        }
      }
    }
  }

  const Store& store_;
  ArrowBatch rows_;
  std::vector<std::span<const float>> numbers_;
  std::vector<FeatureColumn> features_;
  std::int64_t user_ = 0;
  std::vector<std::int64_t> items_;
  std::vector<std::uint32_t> signals_;
};

// Errors may not cross a C interface: they become its words.
template <class Call>
int guarded(ArrowArrayStream* stream, Call&& call) {
  auto& rows = *static_cast<StoreRows*>(stream->private_data);
  try {
    call(rows);
    return 0;
  } catch (const std::exception& failure) {
    rows.error = failure.what();
    return EIO;
  }
}

}  // namespace

void open_store_stream(const Store& store, ArrowArrayStream* out) {
  *out = {};
  out->private_data = new StoreRows(store);
  out->get_schema = [](ArrowArrayStream* stream, ArrowSchema* schema) {
    return guarded(stream, [&](StoreRows& rows) { rows.describe(schema); });
  };
  out->get_next = [](ArrowArrayStream* stream, ArrowArray* batch) {
    *batch = {};
    return guarded(stream, [&](StoreRows& rows) { rows.next(batch); });
  };
  out->get_last_error = [](ArrowArrayStream* stream) {
    return static_cast<StoreRows*>(stream->private_data)->error.c_str();
  };
  out->release = [](ArrowArrayStream* stream) {
    delete static_cast<StoreRows*>(stream->private_data);
    stream->release = nullptr;
  };
}

ColumnMap store_stream_columns(const Store& store) {
  ColumnMap map;
  map.user = kUser;
  map.item = kItem;
  map.time = store.has_times() ? kTime : "none";
  map.signals = store.manifest().signals;
  map.numbers = store.manifest().numbers;
  if (map.signals.empty()) map.signals = {"none"};
  if (map.numbers.empty()) map.numbers = {"none"};
  for (const Feature& feature : event_features(store)) {
    map.features.push_back(feature.name +
                           (feature.kind == FeatureKind::kNumber ? ":number" : ":category"));
  }
  return map;
}

}  // namespace turbogr::data
