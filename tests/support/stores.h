// Small stores whose content can be told from the index: event e of the whole store has item e, so
// a batch shows which events it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <vector>

#include "turbogr/data/store_writer.h"

namespace turbogr::test {

struct StoreOptions {
  data::TimeUnit time_unit = data::TimeUnit::kSeconds;
  bool signals = false;  // then event e has the bits e % 4
};

// Time of event e in a store of write_numbered_store.
inline std::int64_t numbered_time(std::int64_t event) { return 1'000'000 + 7 * event; }

inline void write_numbered_store(const std::filesystem::path& path,
                                 const std::vector<std::int64_t>& lengths,
                                 const StoreOptions& options = {}) {
  using data::TimeUnit;
  data::StoreSchema schema;
  schema.time_unit = options.time_unit;
  schema.num_items = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (options.signals) schema.signals = {"click", "like"};
  data::StoreWriter writer(path, schema);
  std::int64_t event = 0;
  for (const std::int64_t length : lengths) {
    std::vector<std::int64_t> items;
    std::vector<std::int64_t> times;
    std::vector<std::uint32_t> signals;
    for (std::int64_t i = 0; i < length; ++i, ++event) {
      items.push_back(event);
      if (options.time_unit != TimeUnit::kNone) times.push_back(numbered_time(event));
      if (options.signals) signals.push_back(static_cast<std::uint32_t>(event % 4));
    }
    writer.add_user({.items = items, .times = times, .signals = signals, .numbers = {}});
  }
  writer.finish();
}

}  // namespace turbogr::test
