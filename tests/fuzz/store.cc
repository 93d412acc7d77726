// A sequence store whose manifest and columns are the input: JSON up to a zero byte, then bytes
// that fill the columns. Checksums are made right, or nothing would get past them.
#include "turbogr/data/store.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/fuzz/support.h"
#include "turbogr/data/checksum.h"
#include "turbogr/data/stats.h"
#include "turbogr/data/windows.h"

namespace turbogr::data {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestFile = 1 << 16;

// Writes the file an entry of the manifest speaks of, as long as it says, and its checksum.
void write_column(const fuzz::Folder& folder, Json& entry, std::string_view bytes) {
  if (!entry.is_object() || !entry.contains("file") || !entry["file"].is_string()) return;
  const auto name = entry["file"].get<std::string>();
  const bool plain = !name.empty() && name.size() < 100 && name != "." && name != ".." &&
                     name != "manifest.json" &&
                     name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  const Json size = entry.value("bytes", Json());
  if (!plain || !size.is_number_integer()) return;
  const auto wanted = size.get<std::int64_t>();
  if (wanted < 0 || wanted > kLargestFile) return;
  std::string content(bytes.substr(0, static_cast<std::size_t>(wanted)));
  content.resize(static_cast<std::size_t>(wanted));
  folder.write(name, content);
  entry["xxh64"] = checksum_of(content.data(), content.size());
}

void use_ids(const IdMap& ids) {
  for (std::int64_t i = 0; i < std::min<std::int64_t>(ids.size(), 20); ++i) {
    fuzz::errors_are_fine([&] { ids.find(ids.text(i)); });
  }
  fuzz::errors_are_fine([&] { ids.find("a"); });
}

void use_store(const std::filesystem::path& folder) {
  const Store store(folder);
  fuzz::errors_are_fine([&] { store.verify(); });
  if (store.num_items() <= kLargestFile) fuzz::errors_are_fine([&] { stats_of(store); });
  for (const Split split : {Split::kTrain, Split::kTest}) {
    fuzz::errors_are_fine([&] { make_windows(store, {.split = split, .max_length = 4}); });
  }
  for (const Feature& feature : store.manifest().features) {
    const FeatureColumn column = store.feature(feature.owner, feature.name);
    for (std::int64_t row = 0; row < 20; ++row) {
      fuzz::errors_are_fine([&] { column.bag(row); });
      fuzz::errors_are_fine([&] { column.value(static_cast<std::int32_t>(row)); });
    }
  }
  use_ids(store.user_ids());
  use_ids(store.item_ids());
}

}  // namespace
}  // namespace turbogr::data

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turbogr;
  static const fuzz::Folder folder;
  folder.clear();
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 2);
  data::Json manifest = data::Json::parse(parts[0], nullptr, /*allow_exceptions=*/false);
  std::string text = parts[0];
  if (manifest.is_object()) {
    std::size_t at = 0;
    for (const char* list : {"columns", "side_tables"}) {
      if (!manifest.contains(list) || !manifest[list].is_array()) continue;
      for (data::Json& entry : manifest[list]) {
        const std::string_view rest =
            std::string_view(parts[1]).substr(std::min(at, parts[1].size()));
        data::write_column(folder, entry, rest);
        at += 24;  // columns may share bytes: short inputs fill them all
      }
    }
    manifest.erase("manifest_xxh64");
    const std::string body = manifest.dump(2, ' ', true, data::Json::error_handler_t::replace);
    manifest["manifest_xxh64"] = data::checksum_of(body.data(), body.size());
    text = manifest.dump();
  }
  folder.write("manifest.json", text);
  fuzz::errors_are_fine([&] { data::use_store(folder.path()); });
  return 0;
}
