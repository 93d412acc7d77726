#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string>
#include <string_view>

#include "turbogr/data/partial_logs.h"
#include "turbogr/data/synth_chunks.h"
#include "turbogr/data/yambda/yambda_files.h"

namespace turbogr::data {
namespace {

constexpr std::array<const char*, 3> kYambdaFiles = {"multi_event.csv", "artist_item_mapping.csv",
                                                     "album_item_mapping.csv"};

struct TextSlot {
  YambdaHistory history;
  std::string text;
};

void write_rows(const YambdaWorld& world, std::int64_t user, TextSlot& slot) {
  world.generate(user, slot.history);
  const YambdaHistory& history = slot.history;
  slot.text.clear();
  auto out = std::back_inserter(slot.text);
  for (std::size_t i = 0; i < history.items.size(); ++i) {
    const std::uint32_t item = history.items[i];
    const bool listen = history.types[i] == YambdaEvent::kListen;
    fmt::format_to(out, "{},{},{},{},", user + 1, history.times[i], item + 1, history.organic[i]);
    if (listen) {
      fmt::format_to(out, "{},{},", history.played_pct[i], world.catalogue().seconds(item));
    } else {
      slot.text += ",,";
    }
    slot.text += kYambdaTypes[static_cast<std::size_t>(history.types[i])];
    slot.text += '\n';
  }
}

template <class IdOf>
void write_mapping(PartialLogs& logs, std::size_t file, std::string_view header, std::int64_t items,
                   const IdOf& id_of) {
  logs.append(file, header);
  std::string text;
  for (std::int64_t item = 0; item < items; ++item) {
    const std::int32_t id = id_of(static_cast<std::uint32_t>(item));
    if (id == 0) continue;
    text.clear();
    fmt::format_to(std::back_inserter(text), "{},{}\n", id, item + 1);
    logs.append(file, text);
  }
}

}  // namespace

void write_yambda_csv(const YambdaWorld& world, ThreadPool& pool,
                      const std::filesystem::path& folder, const SynthProgress& progress) {
  PartialLogs logs(folder, kYambdaFiles);
  logs.append(0,
              "uid,timestamp,item_id,is_organic,played_ratio_pct,track_length_seconds,"
              "event_type\n");
  for_each_synth_user<TextSlot>(
      world, pool, [&](std::int64_t user, TextSlot& slot) { write_rows(world, user, slot); },
      [&](std::int64_t user, TextSlot& slot) {
        logs.append(0, slot.text);
        if (progress) progress(world.offset(user + 1));
      });
  const YambdaCatalogue& catalogue = world.catalogue();
  write_mapping(logs, 1, "artist_id,item_id\n", catalogue.num_items(),
                [&](std::uint32_t item) { return catalogue.artist(item); });
  write_mapping(logs, 2, "album_id,item_id\n", catalogue.num_items(),
                [&](std::uint32_t item) { return catalogue.album(item); });
  logs.publish();
}

}  // namespace turbogr::data
