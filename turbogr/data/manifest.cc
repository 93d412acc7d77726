#include "turbogr/data/manifest.h"

#include <nlohmann/json.hpp>

#include "turbogr/core/check.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/data/checksum.h"

namespace turbogr::data {
namespace {

using Json = nlohmann::json;  // keys in alphabetical order, so a dump is canonical

constexpr const char* kFormat = "turbogr sequence store";

std::string dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

Json to_json(const FileEntry& entry) {
  return {{"name", entry.name},
          {"file", entry.file},
          {"type", entry.type},
          {"bytes", entry.bytes},
          {"xxh64", entry.checksum}};
}

FileEntry entry_from(const Json& json) {
  FileEntry entry{.name = json.at("name"),
                  .file = json.at("file"),
                  .type = json.at("type"),
                  .bytes = whole_number<std::int64_t>(json.at("bytes")),
                  .checksum = json.at("xxh64")};
  // A manifest must not lead a reader out of its folder.
  TGR_CHECK(!entry.file.empty() && entry.file.find('/') == std::string::npos && entry.file != "..",
            "file name '", entry.file, "' is not a plain name");
  return entry;
}

Json to_json(const Feature& feature) {
  return {{"owner", name_of(feature.owner)}, {"name", feature.name},
          {"kind", name_of(feature.kind)},   {"values", feature.values},
          {"missing", feature.missing},      {"unparsable", feature.unparsable}};
}

Json to_json(const FeatureTable& table) {
  return {{"owner", name_of(table.owner)},          {"rows", table.rows},
          {"without_events", table.without_events}, {"repeated", table.repeated},
          {"unreadable", table.unreadable},         {"without_row", table.without_row}};
}

template <class Enum>
Enum from_name(const std::string& name, std::initializer_list<Enum> known) {
  for (const Enum value : known) {
    if (name_of(value) == name) return value;
  }
  detail::throw_error("unknown word '", name, "'");
}

FeatureOwner owner_from(const Json& json) {
  return from_name(json.at("owner").get<std::string>(),
                   {FeatureOwner::kItem, FeatureOwner::kUser, FeatureOwner::kEvent});
}

Feature feature_from(const Json& json) {
  return {.name = json.at("name"),
          .owner = owner_from(json),
          .kind = from_name(json.at("kind").get<std::string>(),
                            {FeatureKind::kCategory, FeatureKind::kBag, FeatureKind::kNumber}),
          .values = whole_number<std::int64_t>(json.at("values")),
          .missing = whole_number<std::int64_t>(json.at("missing")),
          .unparsable = whole_number<std::int64_t>(json.at("unparsable"))};
}

FeatureTable feature_table_from(const Json& json) {
  return {.owner = owner_from(json),
          .rows = whole_number<std::int64_t>(json.at("rows")),
          .without_events = whole_number<std::int64_t>(json.at("without_events")),
          .repeated = whole_number<std::int64_t>(json.at("repeated")),
          .unreadable = whole_number<std::int64_t>(json.at("unreadable")),
          .without_row = whole_number<std::int64_t>(json.at("without_row"))};
}

}  // namespace

std::string_view name_of(TimeUnit unit) {
  return unit == TimeUnit::kNone ? "none" : unit == TimeUnit::kSeconds ? "s" : "ms";
}

std::string_view name_of(IdKind kind) {
  return kind == IdKind::kRange ? "range" : kind == IdKind::kInt64 ? "int64" : "string";
}

std::int64_t Manifest::rows_of(FeatureOwner owner) const {
  return owner == FeatureOwner::kItem ? items : owner == FeatureOwner::kUser ? users : events;
}

const FileEntry* Manifest::column(std::string_view name) const {
  for (const FileEntry& entry : columns) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string Manifest::to_json() const {
  Json json = {{"format", kFormat},
               {"version", features.empty() ? 1 : kStoreVersion},
               {"users", users},
               {"items", items},
               {"events", events},
               {"time_unit", name_of(time_unit)},
               {"user_ids", name_of(user_ids)},
               {"item_ids", name_of(item_ids)},
               {"signals", signals},
               {"numbers", numbers},
               {"columns", Json::array()},
               {"side_tables", Json::array()}};
  for (const FileEntry& entry : columns) json["columns"].push_back(data::to_json(entry));
  for (const SideTable& table : side_tables) {
    Json entry = data::to_json(table.file);
    entry["key"] = table.key;
    json["side_tables"].push_back(entry);
  }
  if (items_without_events > 0) json["items_without_events"] = items_without_events;
  if (!features.empty()) {
    json["features"] = Json::array();
    for (const Feature& feature : features) json["features"].push_back(data::to_json(feature));
    json["feature_tables"] = Json::array();
    for (const FeatureTable& table : feature_tables) {
      json["feature_tables"].push_back(data::to_json(table));
    }
  }
  const std::string body = dump(json);
  json["manifest_xxh64"] = checksum_of(body.data(), body.size());
  return dump(json) + "\n";
}

Manifest Manifest::from_json(const std::string& text, const std::filesystem::path& path) {
  Json json = parse_json<Json>(text);
  TGR_CHECK(!json.is_discarded(), "'", path.string(),
            "' is damaged: it is not JSON; restore it or prepare the store again");
  TGR_CHECK(json.is_object() && json.value("format", Json()) == kFormat, "'", path.string(),
            "' is not the manifest of a sequence store: \"format\" should be \"", kFormat, '"');
  const Json version = json.value("version", Json());
  TGR_CHECK(
      version.is_number_unsigned() && version.get<std::uint64_t>() <= std::uint64_t{kStoreVersion},
      "'", path.string(), "' has store version ", version.dump(), "; this program reads up to ",
      kStoreVersion, ": use a newer turbogr");
  const Json checksum = json.value("manifest_xxh64", Json());
  json.erase("manifest_xxh64");
  const std::string body = dump(json);
  TGR_CHECK(checksum == checksum_of(body.data(), body.size()), "'", path.string(),
            "' is damaged: its checksum does not match; restore it or prepare the store again");
  try {
    Manifest manifest;
    manifest.users = whole_number<std::int64_t>(json.at("users"));
    manifest.items = whole_number<std::int64_t>(json.at("items"));
    manifest.events = whole_number<std::int64_t>(json.at("events"));
    manifest.time_unit = from_name(json.at("time_unit").get<std::string>(),
                                   {TimeUnit::kNone, TimeUnit::kSeconds, TimeUnit::kMilliseconds});
    const auto kinds = {IdKind::kRange, IdKind::kInt64, IdKind::kString};
    manifest.user_ids = from_name(json.at("user_ids").get<std::string>(), kinds);
    manifest.item_ids = from_name(json.at("item_ids").get<std::string>(), kinds);
    manifest.signals = json.at("signals").get<std::vector<std::string>>();
    manifest.numbers = json.at("numbers").get<std::vector<std::string>>();
    for (const Json& entry : json.at("columns")) manifest.columns.push_back(entry_from(entry));
    for (const Json& entry : json.at("side_tables")) {
      manifest.side_tables.push_back({.key = entry.at("key"), .file = entry_from(entry)});
    }
    if (version > 1) {
      for (const Json& entry : json.at("features")) {
        manifest.features.push_back(feature_from(entry));
      }
      for (const Json& entry : json.at("feature_tables")) {
        manifest.feature_tables.push_back(feature_table_from(entry));
      }
    }
    if (json.contains("items_without_events")) {
      manifest.items_without_events = whole_number<std::int64_t>(json.at("items_without_events"));
    }
    // Far beyond any disk, and yet small enough to be multiplied by the bytes of a value.
    constexpr std::int64_t kLargestCount = std::int64_t{1} << 56;
    for (const std::int64_t count : {manifest.users, manifest.items, manifest.events}) {
      TGR_CHECK(count >= 0, "a count is negative");
      TGR_CHECK(count <= kLargestCount, "a count of ", count, " is too large");
    }
    // Such items have ids in a file, whose size bounds their number.
    TGR_CHECK(manifest.items_without_events >= 0 &&
                  (manifest.items_without_events == 0 || manifest.item_ids != IdKind::kRange),
              manifest.items_without_events, " items without events cannot be");
    for (const Feature& feature : manifest.features) {
      TGR_CHECK(feature.values >= 0 && feature.values <= kLargestCount, "feature '", feature.name,
                "' has ", feature.values, " values");
    }
    return manifest;
  } catch (const Json::exception&) {
    detail::throw_error("'", path.string(),
                        "' is not a whole manifest: a field is missing, or of another kind than "
                        "this program writes; restore it or prepare the store again");
  } catch (const Error& error) {
    detail::throw_error("'", path.string(), "' is not a whole manifest: ", error.what());
  }
}

}  // namespace turbogr::data
