#include <charconv>
#include <cmath>
#include <string>

#include "turbogr/data/appearing_items.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/data/synth_chunks.h"
#include "turbogr/data/yambda/yambda_files.h"

namespace turbogr::data {
namespace {

constexpr std::uint32_t kListenPlus = 1, kLike = 2, kSkip = 4;

struct YambdaSlot {
  YambdaHistory history;
  std::vector<std::int64_t> items;
  std::vector<std::uint32_t> signals;
  std::vector<float> played, seconds;
};

std::uint32_t signals_of(YambdaEvent type, std::uint16_t played) {
  if (type == YambdaEvent::kLike) return kLike;
  if (type != YambdaEvent::kListen) return 0;
  return played >= kYambdaListened ? kListenPlus : kSkip;
}

void fill(const YambdaWorld& world, const AppearingItems& appearing, bool numbers,
          YambdaSlot& slot) {
  const YambdaHistory& history = slot.history;
  slot.items.clear();
  slot.signals.clear();
  slot.played.clear();
  slot.seconds.clear();
  for (std::size_t i = 0; i < history.items.size(); ++i) {
    slot.items.push_back(appearing.index(history.items[i]));
    slot.signals.push_back(signals_of(history.types[i], history.played_pct[i]));
    if (!numbers) continue;
    const bool listen = history.types[i] == YambdaEvent::kListen;
    slot.played.push_back(listen ? static_cast<float>(history.played_pct[i]) : NAN);
    slot.seconds.push_back(listen ? static_cast<float>(world.catalogue().seconds(history.items[i]))
                                  : NAN);
  }
}

// The artist or album of each item that appears. Ids rise with items, since an artist's tracks are
// neighbours; codes are those of the whole catalogue's ids, as of a mapping prepared as a table.
class IdFeature {
 public:
  IdFeature(StoreWriter& writer, const char* name)
      : writer_(writer.add_feature({.name = name, .owner = FeatureOwner::kItem})) {}

  void add(std::int32_t id, bool appears) {
    if (id > last_) {
      char text[16];
      const auto end = std::to_chars(text, text + sizeof(text), id).ptr;
      writer_.add_value({text, static_cast<std::size_t>(end - text)});
      last_ = id;
      ++code_;
    }
    if (appears) writer_.add_code(id == 0 ? 0 : code_);
  }

 private:
  FeatureWriter& writer_;
  std::int32_t last_ = 0, code_ = 0;
};

// What prepare says of the mappings.
void write_items(const YambdaCatalogue& catalogue, const AppearingItems& appearing,
                 StoreWriter& writer) {
  IdFeature artist(writer, "artist_id"), album(writer, "album_id");
  FeatureTable mappings{.owner = FeatureOwner::kItem};
  for (std::int64_t id = 0; id < catalogue.num_items(); ++id) {
    const auto item = static_cast<std::uint32_t>(id);
    const bool appears = appearing.has(item);
    if (appears) writer.add_item_id(id + 1);
    artist.add(catalogue.artist(item), appears);
    album.add(catalogue.album(item), appears);
    const std::int64_t rows =
        (catalogue.artist(item) != 0 ? 1 : 0) + (catalogue.album(item) != 0 ? 1 : 0);
    mappings.rows += rows;
    mappings.without_events += appears ? 0 : rows;
    mappings.without_row += appears && rows == 0 ? 1 : 0;
  }
  writer.add_feature_table(mappings);
}

}  // namespace

void write_yambda_store(const YambdaWorld& world, ThreadPool& pool,
                        const std::filesystem::path& target, const SynthStoreOptions& options) {
  PartialFolder folder(target, options.overwrite);
  // Twice through the world, as synth_store.cc does.
  AppearingItems appearing(world.catalogue().num_items());
  for_each_synth_user<YambdaHistory>(
      world, pool,
      [&](std::int64_t user, YambdaHistory& history) {
        world.generate(user, history);
        for (const std::uint32_t item : history.items) appearing.mark(item);
      },
      [](std::int64_t, YambdaHistory&) {});

  StoreWriter writer(std::move(folder),
                     {.time_unit = TimeUnit::kSeconds,
                      .num_items = appearing.count_up(),
                      .user_ids = IdKind::kInt64,
                      .item_ids = IdKind::kInt64,
                      .signals = {"listen_plus", "like", "skip"},
                      .numbers = options.numbers ? std::vector<std::string>{"played_ratio_pct",
                                                                            "track_length_seconds"}
                                                 : std::vector<std::string>{}});
  FeatureWriter& organic =
      writer.add_feature({.name = "is_organic", .owner = FeatureOwner::kEvent});
  organic.add_value("0");
  organic.add_value("1");
  for_each_synth_user<YambdaSlot>(
      world, pool,
      [&](std::int64_t user, YambdaSlot& slot) {
        world.generate(user, slot.history);
        fill(world, appearing, options.numbers, slot);
      },
      [&](std::int64_t user, YambdaSlot& slot) {
        Events events{.items = slot.items,
                      .times = slot.history.times,
                      .signals = slot.signals,
                      .numbers = {}};
        if (options.numbers) events.numbers = {slot.played, slot.seconds};
        writer.add_user(user + 1, events);
        for (const std::uint8_t own : slot.history.organic) organic.add_code(own + 1);
        if (options.progress) options.progress(writer.num_events());
      });
  write_items(world.catalogue(), appearing, writer);
  writer.finish();
}

}  // namespace turbogr::data
