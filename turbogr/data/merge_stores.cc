#include "turbogr/data/merge_stores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <string>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/store_stream.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

std::string kept_of_an_event(const Store& store) {
  const ColumnMap map = store_stream_columns(store);
  const auto id = [](const IdMap& ids) {
    return ids.kind() == IdKind::kString ? "texts" : "numbers";
  };
  return fmt::format(
      "users are {}, items are {}, times in {}, signals {}, numbers {}, features {}",
      id(store.user_ids()), id(store.item_ids()), name_of(store.time_unit()),
      fmt::join(map.signals, ","), fmt::join(map.numbers, ","),
      map.features.empty() ? "none" : fmt::format("{}", fmt::join(map.features, ",")));
}

// Released by its reader; by itself where it never got one.
struct OwnStream {
  ArrowArrayStream raw = {};

  OwnStream() = default;
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    if (raw.release != nullptr) raw.release(&raw);
  }
};

}  // namespace

PrepareReport merge_stores(const std::vector<std::filesystem::path>& parts,
                           PrepareOptions options) {
  TGR_CHECK(!parts.empty(), "merge what? Give the stores");
  std::deque<Store> stores;  // never moved: streams point at them
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::filesystem::path& part = parts[i];
    const Store& store = stores.emplace_back(part);
    for (std::size_t j = 0; j < i; ++j) {
      TGR_CHECK(!std::filesystem::equivalent(part, parts[j]), "'", part.string(),
                "' is given twice; give each part once");
    }
    TGR_CHECK(
        !std::filesystem::exists(options.out) || !std::filesystem::equivalent(part, options.out),
        "'", part.string(), "' is a part and cannot be replaced by the whole; choose ",
        "another --out");
    store.verify();  // damage would get a fresh checksum
    TGR_CHECK(kept_of_an_event(store) == kept_of_an_event(stores.front()), "'",
              parts.front().string(), "' and '", part.string(),
              "' do not keep the same of an event (", kept_of_an_event(stores.front()), "; ",
              kept_of_an_event(store),
              "); prepare all parts with the same options, --ids and --time-unit among them");
  }
  options.columns = store_stream_columns(stores.front());
  options.time_unit =
      stores.front().has_times() ? std::string(name_of(stores.front().time_unit())) : "auto";
  std::deque<OwnStream> streams;
  for (const Store& store : stores) {
    open_store_stream(store, &streams.emplace_back().raw);
    options.streams.push_back({store.folder().string(), &streams.back().raw});
  }
  return prepare(options);
}

}  // namespace turbogr::data
