#include <algorithm>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/checksum.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

void check_file(const std::filesystem::path& path, const FileEntry& entry) {
  const MappedFile file(path);
  Checksum checksum;
  checksum.update(file.data(), file.size());
  TGR_CHECK(checksum.hex() == entry.checksum, "'", path.string(), "' has checksum ", checksum.hex(),
            ", the manifest says ", entry.checksum, ": the store is damaged; prepare it again");
}

template <class Item>
void check_items(std::span<const Item> items, const Manifest& manifest) {
  // Stores made by others than prepare do not count items without events.
  const bool counted = manifest.items_without_events > 0;
  std::vector<bool> met(counted ? static_cast<std::size_t>(manifest.items) : 0);
  for (std::size_t event = 0; event < items.size(); ++event) {
    TGR_CHECK(items[event] >= 0 && items[event] < manifest.items, "event ", event, " has item ",
              items[event], " of ", manifest.items);
    if (counted) met[static_cast<std::size_t>(items[event])] = true;
  }
  if (!counted) return;
  const auto unmet = std::count(met.begin(), met.end(), false);
  TGR_CHECK(unmet == manifest.items_without_events, unmet,
            " items have no events, and the manifest says ", manifest.items_without_events);
}

void check_ids(const IdMap& ids, const char* whose) {
  for (std::int64_t i = 1; i < ids.size() && ids.kind() != IdKind::kRange; ++i) {
    const bool rises = ids.kind() == IdKind::kInt64 ? ids.integer(i - 1) < ids.integer(i)
                                                    : ids.string(i - 1) < ids.string(i);
    TGR_CHECK(rises, whose, " ids do not rise at index ", i);
  }
}

}  // namespace

void Store::verify() const {
  for (const FileEntry& entry : manifest_.columns) check_file(folder_ / entry.file, entry);
  for (const SideTable& table : manifest_.side_tables) {
    check_file(folder_ / table.file.file, table.file);
  }
  for (std::int64_t user = 0; user < num_users(); ++user) {
    const auto begin = offsets_[static_cast<std::size_t>(user)];
    const auto end = offsets_[static_cast<std::size_t>(user) + 1];
    TGR_CHECK(begin <= end && end <= num_events(), "offsets fall at user ", user);
    if (!has_times()) continue;
    const auto history =
        times().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    TGR_CHECK(std::is_sorted(history.begin(), history.end()), "times of user ", user,
              " are not in order");
  }
  if (wide_items_) {
    check_items(items64(), manifest_);
  } else {
    check_items(items32(), manifest_);
  }
  for (const Feature& feature : manifest_.features) open_feature(feature).verify();
  check_ids(user_ids_, "user");
  check_ids(item_ids_, "item");
}

}  // namespace turbogr::data
