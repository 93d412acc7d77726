// A sequence store, open for reading: histories of all users end to end in mapped columns. Opening
// checks the manifest and the sizes and touches no event, so it takes milliseconds at any size;
// what is read later is checked as far as it could lead out of memory; verify() reads every byte.
//
//   Store store("ml-1m.store");
//   const auto [first, count] = store.events_of(user);
//   store.read_items(first, items);                     // dense indices, `count` of them
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "turbogr/core/file.h"
#include "turbogr/data/features/feature_column.h"
#include "turbogr/data/id_map.h"
#include "turbogr/data/manifest.h"

namespace turbogr::data {

class Store {
 public:
  explicit Store(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  std::int64_t num_users() const { return manifest_.users; }
  std::int64_t num_items() const { return manifest_.items; }
  std::int64_t num_events() const { return manifest_.events; }
  TimeUnit time_unit() const { return manifest_.time_unit; }
  bool has_times() const { return manifest_.time_unit != TimeUnit::kNone; }

  // [users + 1]: events of user u are offsets()[u] up to offsets()[u + 1], oldest first.
  std::span<const std::int64_t> offsets() const { return offsets_; }
  struct UserEvents {
    std::int64_t first, count;
  };
  UserEvents events_of(std::int64_t user) const;  // throws where the offsets are damaged

  // Dense item index of every event. Stores of 2^31 items and more are wide: items64(). Asking for
  // the other width throws; read_items serves both, and throws on an item that is none.
  bool wide_items() const { return wide_items_; }
  std::span<const std::int32_t> items32() const;
  std::span<const std::int64_t> items64() const;
  void read_items(std::int64_t first_event, std::span<std::int64_t> out) const;

  // In time_unit() since 1970, never falling within a user. Throws when the store is order only.
  std::span<const std::int64_t> times() const;

  // Bit b of an event is manifest().signals[b]. Zeros when the store has no signals.
  bool has_signals() const { return !manifest_.signals.empty(); }
  void read_signals(std::int64_t first_event, std::span<std::uint32_t> out) const;
  int signal_bit(std::string_view name) const;  // throws on an unknown name, listing those known

  std::span<const float> numbers(std::string_view name) const;  // throws likewise; NaN: was empty

  const IdMap& user_ids() const { return user_ids_; }
  const IdMap& item_ids() const { return item_ids_; }
  // Features in manifest().features; an unknown name throws, listing those known.
  bool has_feature(FeatureOwner owner, std::string_view name) const;
  FeatureColumn feature(FeatureOwner owner, std::string_view name) const;

  std::filesystem::path side_table(std::string_view name) const;  // path of the copied CSV

  // Checks every byte against its checksum, and the columns against each other: offsets never fall,
  // items in range, times in order, ids ascending, features within their vocabularies. Throws on
  // the first thing wrong.
  void verify() const;

 private:
  const MappedFile& map(std::string_view column) const;
  template <class T>
  std::span<const T> column(std::string_view name, std::int64_t count) const;
  FeatureColumn open_feature(const Feature& feature) const;
  IdMap open_ids(IdKind kind, const std::string& prefix, std::int64_t count) const;
  void check_range(std::int64_t first_event, std::size_t count) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<MappedFile> files_;  // one a manifest_.columns entry
  std::span<const std::int64_t> offsets_;
  bool wide_items_ = false;
  IdMap user_ids_;
  IdMap item_ids_;
};

}  // namespace turbogr::data
