#include <array>

#include "turbogr/data/arrow/parquet_files.h"
#include "turbogr/data/partial_logs.h"
#include "turbogr/data/synth_chunks.h"
#include "turbogr/data/yambda/yambda_files.h"

namespace turbogr::data {
namespace {

using Type = ArrowBatch::Type;

constexpr std::array<const char*, 3> kParquetFiles = {
    "multi_event.parquet", "artist_item_mapping.parquet", "album_item_mapping.parquet"};

ArrowBatch event_columns() {
  return ArrowBatch({{"uid", Type::kUint32},
                     {"timestamp", Type::kUint32},
                     {"item_id", Type::kUint32},
                     {"is_organic", Type::kUint8},
                     {"played_ratio_pct", Type::kUint16, 1, /*optional=*/true},
                     {"track_length_seconds", Type::kUint32, 1, /*optional=*/true},
                     {"event_type", Type::kText}});
}

void add_events(const YambdaWorld& world, std::int64_t user, const YambdaHistory& history,
                ParquetWriter& file) {
  for (std::size_t i = 0; i < history.items.size(); ++i) {
    const std::uint32_t item = history.items[i];
    ArrowBatch& rows = file.rows();
    rows.add(0, user + 1);
    rows.add(1, history.times[i]);
    rows.add(2, std::int64_t{item} + 1);
    rows.add(3, std::int64_t{history.organic[i]});
    if (history.types[i] == YambdaEvent::kListen) {
      rows.add(4, std::int64_t{history.played_pct[i]});
      rows.add(5, world.catalogue().seconds(item));
    } else {
      rows.add_missing(4);
      rows.add_missing(5);
    }
    rows.add(6, kYambdaTypes[static_cast<std::size_t>(history.types[i])]);
    file.flush_if_many();
  }
}

template <class IdOf>
void write_parquet_mapping(const std::string& path, const char* id_name, std::int64_t items,
                           const IdOf& id_of) {
  ParquetWriter file(path, ArrowBatch({{id_name, Type::kUint32}, {"item_id", Type::kUint32}}));
  for (std::int64_t item = 0; item < items; ++item) {
    const std::int32_t id = id_of(static_cast<std::uint32_t>(item));
    if (id == 0) continue;
    file.rows().add(0, std::int64_t{id});
    file.rows().add(1, item + 1);
    file.flush_if_many();
  }
  file.finish();
}

}  // namespace

void write_yambda_parquet(const YambdaWorld& world, ThreadPool& pool,
                          const std::filesystem::path& folder, const SynthProgress& progress) {
  PartialFiles names(folder, kParquetFiles);
  ParquetWriter events(names.path(0), event_columns());
  for_each_synth_user<YambdaHistory>(
      world, pool,
      [&](std::int64_t user, YambdaHistory& history) { world.generate(user, history); },
      [&](std::int64_t user, YambdaHistory& history) {
        add_events(world, user, history, events);
        if (progress) progress(world.offset(user + 1));
      });
  events.finish();
  const YambdaCatalogue& catalogue = world.catalogue();
  write_parquet_mapping(names.path(1), "artist_id", catalogue.num_items(),
                        [&](std::uint32_t item) { return catalogue.artist(item); });
  write_parquet_mapping(names.path(2), "album_id", catalogue.num_items(),
                        [&](std::uint32_t item) { return catalogue.album(item); });
  names.publish();
}

}  // namespace turbogr::data
