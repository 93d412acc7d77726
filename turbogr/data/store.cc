#include "turbogr/data/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/core/output_file.h"
#include "turbogr/data/partial_folder.h"

namespace turbogr::data {
namespace {

constexpr std::size_t kLargestManifest = 64 << 20;

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
  if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32";
  if constexpr (std::is_same_v<T, std::uint16_t>) return "uint16";
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, char>) return "bytes";
}

Manifest read_manifest(const std::filesystem::path& folder) {
  TGR_CHECK(std::filesystem::exists(folder), "there is no store at '", folder.string(),
            "'; make one with `turbogr data prepare` or `turbogr data synth`");
  TGR_CHECK(!is_partial_folder(folder), "'", folder.string(),
            "' is what an interrupted run left; prepare the store again");
  TGR_CHECK(!std::filesystem::is_regular_file(folder), "'", folder.string(),
            "' is a file and no store; make one of it with `turbogr data prepare ",
            folder.filename().string(), " --out STORE`");
  const std::filesystem::path path = folder / "manifest.json";
  TGR_CHECK(std::filesystem::is_regular_file(path), "'", folder.string(),
            "' is not a sequence store: it has no manifest.json");
  return Manifest::from_json(read_file(path.string(), kLargestManifest), path);
}

}  // namespace

Store::Store(const std::filesystem::path& folder)
    : folder_(folder), manifest_(read_manifest(folder)) {
  for (const FileEntry& entry : manifest_.columns) {
    TGR_CHECK(std::filesystem::exists(folder_ / entry.file), "'", (folder_ / entry.file).string(),
              "', which the manifest lists, is missing: the store is damaged; prepare it again");
    MappedFile file(folder_ / entry.file);
    TGR_CHECK(static_cast<std::int64_t>(file.size()) == entry.bytes, "'",
              (folder_ / entry.file).string(), "' has ", file.size(), " bytes, the manifest says ",
              entry.bytes, ": the store is damaged; prepare it again");
    files_.push_back(std::move(file));
  }
  offsets_ = column<std::int64_t>("user_offsets", manifest_.users + 1);
  TGR_CHECK(offsets_.front() == 0 && offsets_.back() == manifest_.events, "'", folder_.string(),
            "' is damaged: its offsets end at ", offsets_.back(), ", not at ", manifest_.events,
            " events");
  const FileEntry* items = manifest_.column("items");
  wide_items_ = items != nullptr && items->type == "int64";
  if (wide_items_) {
    column<std::int64_t>("items", manifest_.events);
  } else {
    column<std::int32_t>("items", manifest_.events);
  }
  if (has_times()) column<std::int64_t>("times", manifest_.events);
  TGR_CHECK(manifest_.signals.size() <= 32, "'", folder_.string(), "' names ",
            manifest_.signals.size(), " signals; 32 is the most");
  if (manifest_.signals.size() > 16) {
    column<std::uint32_t>("signals", manifest_.events);
  } else if (has_signals()) {
    column<std::uint16_t>("signals", manifest_.events);
  }
  for (const std::string& name : manifest_.numbers) {
    column<float>("number:" + name, manifest_.events);
  }
  user_ids_ = open_ids(manifest_.user_ids, "user", manifest_.users);
  item_ids_ = open_ids(manifest_.item_ids, "item", manifest_.items);
  for (const Feature& feature : manifest_.features) open_feature(feature);
  for (const SideTable& table : manifest_.side_tables) {
    const std::filesystem::path path = folder_ / table.file.file;
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    TGR_CHECK(!error && static_cast<std::int64_t>(bytes) == table.file.bytes, "side table '",
              path.string(), "' is missing or has changed; prepare the store again");
  }
}

const MappedFile& Store::map(std::string_view name) const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (manifest_.columns[i].name == name) return files_[i];
  }
  detail::throw_error("'", folder_.string(), "' has no column '", name,
                      "', which its manifest promises; prepare the store again");
}

template <class T>
std::span<const T> Store::column(std::string_view name, std::int64_t count) const {
  const MappedFile& file = map(name);
  const FileEntry& entry = *manifest_.column(name);
  TGR_CHECK(entry.type == type_name<T>(), "'", folder_.string(), "' keeps column '", name, "' as ",
            entry.type, ", not ", type_name<T>());
  TGR_CHECK(count < 0 || static_cast<std::int64_t>(file.size()) ==
                             count * static_cast<std::int64_t>(sizeof(T)),
            "'", folder_.string(), "': column '", name, "' has ", file.size(), " bytes, wanted ",
            count, " values of ", sizeof(T), " bytes: the store is damaged; prepare it again");
  return file.as<T>();
}

IdMap Store::open_ids(IdKind kind, const std::string& prefix, std::int64_t count) const {
  if (kind == IdKind::kRange) return IdMap::range(count);
  if (kind == IdKind::kInt64) return IdMap::integers(column<std::int64_t>(prefix + "_ids", count));
  return IdMap::strings(column<std::int64_t>(prefix + "_id_offsets", count + 1),
                        column<char>(prefix + "_id_text", -1));
}

std::span<const std::int32_t> Store::items32() const {
  return column<std::int32_t>("items", manifest_.events);
}

std::span<const std::int64_t> Store::items64() const {
  return column<std::int64_t>("items", manifest_.events);
}

void Store::check_range(std::int64_t first_event, std::size_t count) const {
  TGR_CHECK(first_event >= 0 && static_cast<std::int64_t>(count) <= num_events() - first_event,
            "events ", first_event, " to ", first_event + static_cast<std::int64_t>(count),
            " are not all among the store's ", num_events());
}

Store::UserEvents Store::events_of(std::int64_t user) const {
  const std::int64_t begin = offsets_[static_cast<std::size_t>(user)];
  const std::int64_t end = offsets_[static_cast<std::size_t>(user) + 1];
  TGR_CHECK(begin >= 0 && begin <= end && end <= num_events(), "'", folder_.string(),
            "': the offsets of user ", user, " are damaged; run `turbogr data verify`");
  return {begin, end - begin};
}

void Store::read_items(std::int64_t first_event, std::span<std::int64_t> out) const {
  check_range(first_event, out.size());
  if (wide_items_) {
    std::copy_n(items64().begin() + first_event, out.size(), out.begin());
  } else {
    std::copy_n(items32().begin() + first_event, out.size(), out.begin());
  }
  const auto bad = std::find_if(out.begin(), out.end(),
                                [&](std::int64_t item) { return item < 0 || item >= num_items(); });
  TGR_CHECK(bad == out.end(), "'", folder_.string(), "': event ", first_event + (bad - out.begin()),
            " names item ", *bad, ", and there are ", num_items(),
            "; the store is damaged, run `turbogr data verify`");
}

std::span<const std::int64_t> Store::times() const {
  TGR_CHECK(has_times(), "'", folder_.string(),
            "' has no times, only the order of events; prepare it from logs with a time column");
  return column<std::int64_t>("times", manifest_.events);
}

void Store::read_signals(std::int64_t first_event, std::span<std::uint32_t> out) const {
  check_range(first_event, out.size());
  if (!has_signals()) {
    std::fill(out.begin(), out.end(), 0u);
  } else if (manifest_.signals.size() > 16) {
    const auto bits = column<std::uint32_t>("signals", manifest_.events);
    std::copy_n(bits.begin() + first_event, out.size(), out.begin());
  } else {
    const auto bits = column<std::uint16_t>("signals", manifest_.events);
    std::copy_n(bits.begin() + first_event, out.size(), out.begin());
  }
}

int Store::signal_bit(std::string_view name) const {
  const auto at = std::find(manifest_.signals.begin(), manifest_.signals.end(), name);
  TGR_CHECK(at != manifest_.signals.end(), "'", folder_.string(), "' has no signal '", name,
            "'; it has: ", fmt::format("{}", fmt::join(manifest_.signals, ", ")));
  return static_cast<int>(at - manifest_.signals.begin());
}

std::span<const float> Store::numbers(std::string_view name) const {
  const auto at = std::find(manifest_.numbers.begin(), manifest_.numbers.end(), name);
  TGR_CHECK(at != manifest_.numbers.end(), "'", folder_.string(), "' has no numbers '", name,
            "'; it has: ", fmt::format("{}", fmt::join(manifest_.numbers, ", ")));
  return column<float>("number:" + *at, manifest_.events);
}

FeatureColumn Store::open_feature(const Feature& feature) const {
  FeatureColumn found{
      .about = feature, .codes = {}, .offsets = {}, .numbers = {}, .text_offsets = {}, .text = {}};
  const std::int64_t rows = manifest_.rows_of(feature.owner);
  const auto check_ends = [&](std::span<const std::int64_t> offsets, std::size_t end) {
    TGR_CHECK(offsets.front() == 0 && offsets.back() == static_cast<std::int64_t>(end), "'",
              folder_.string(), "': the offsets of ", name_of(feature.owner), " feature '",
              feature.name, "' end at ", offsets.back(), ", not at ", end,
              ": the store is damaged; prepare it again");
  };
  if (feature.kind == FeatureKind::kNumber) {
    found.numbers = column<float>(feature.column(), rows);
    return found;
  }
  if (feature.kind == FeatureKind::kBag) {
    found.codes = column<std::int32_t>(feature.column(), -1);
    found.offsets = column<std::int64_t>(feature.column("offsets"), rows + 1);
    check_ends(found.offsets, found.codes.size());
  } else {
    found.codes = column<std::int32_t>(feature.column(), rows);
  }
  found.text_offsets = column<std::int64_t>(feature.column("text_offsets"), feature.values + 1);
  found.text = column<char>(feature.column("text"), -1);
  check_ends(found.text_offsets, found.text.size());
  return found;
}

bool Store::has_feature(FeatureOwner owner, std::string_view name) const {
  return std::any_of(
      manifest_.features.begin(), manifest_.features.end(),
      [&](const Feature& feature) { return feature.owner == owner && feature.name == name; });
}

FeatureColumn Store::feature(FeatureOwner owner, std::string_view name) const {
  std::vector<std::string> known;
  for (const Feature& feature : manifest_.features) {
    if (feature.owner != owner) continue;
    if (feature.name == name) return open_feature(feature);
    known.push_back(feature.name);
  }
  TGR_CHECK(!known.empty(), "'", folder_.string(), "' has no features of ", name_of(owner),
            "s; prepare it with --", name_of(owner), "-features ", name);
  detail::throw_error("'", folder_.string(), "' has no ", name_of(owner), " feature '", name,
                      "'; it has: ", fmt::format("{}", fmt::join(known, ", ")));
}

std::filesystem::path Store::side_table(std::string_view name) const {
  for (const SideTable& table : manifest_.side_tables) {
    if (table.file.name == name) return folder_ / table.file.file;
  }
  detail::throw_error("'", folder_.string(), "' has no side table '", name, "'");
}

}  // namespace turbogr::data
