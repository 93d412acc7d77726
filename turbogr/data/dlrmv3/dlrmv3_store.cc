#include "turbogr/data/dlrmv3/dlrmv3_store.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/data/appearing_items.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/data/synth_chunks.h"

namespace turbogr::data {
namespace {

constexpr std::uint32_t kLikedBit = 1u << 5;

struct Dlrmv3Slot {
  Dlrmv3History history;
  std::vector<std::int64_t> items, times;
  std::vector<std::uint32_t> signals;
};

std::uint32_t signals_of_rating(float rating) {
  constexpr float kRounding = 1e-4f;  // a sum of cosines may lie a bit below the whole number it is
  const int whole = std::clamp(static_cast<int>(rating + kRounding), 1, 5);
  const bool liked = rating + kRounding >= static_cast<float>(Dlrmv3World::kLiked);
  return 1u << (whole - 1) | (liked ? kLikedBit : 0);
}

void fill_slot(const AppearingItems& appearing, Dlrmv3Slot& slot) {
  slot.items.clear();
  slot.times.clear();
  slot.signals.clear();
  for (std::size_t i = 0; i < slot.history.items.size(); ++i) {
    slot.items.push_back(appearing.index(slot.history.items[i]));
    slot.times.push_back(slot.history.steps[i] - Dlrmv3World::kBase);
    slot.signals.push_back(signals_of_rating(slot.history.ratings[i]));
  }
}

}  // namespace

void write_dlrmv3_store(const Dlrmv3World& world, ThreadPool& pool,
                        const std::filesystem::path& target, const SynthStoreOptions& options) {
  PartialFolder folder(target, options.overwrite);
  // Twice through the world, as synth_store.cc does.
  AppearingItems appearing(world.num_items());
  for_each_synth_user<Dlrmv3History>(
      world, pool,
      [&](std::int64_t user, Dlrmv3History& history) {
        world.generate(user, history);
        for (const std::uint32_t item : history.items) appearing.mark(item);
      },
      [](std::int64_t, Dlrmv3History&) {});

  StoreWriter writer(
      std::move(folder),
      {.time_unit = TimeUnit::kMilliseconds,
       .num_items = appearing.count_up(),
       .user_ids = IdKind::kRange,
       .item_ids = IdKind::kInt64,
       .signals = {"rating_1", "rating_2", "rating_3", "rating_4", "rating_5", "liked"},
       .numbers =
           options.numbers ? std::vector<std::string>{"rating"} : std::vector<std::string>{}});
  FeatureWriter& category = writer.add_feature({.name = "category", .owner = FeatureOwner::kItem});
  for (std::int64_t c = 0; c < Dlrmv3World::kCategories; ++c) category.add_value(std::to_string(c));
  for_each_synth_user<Dlrmv3Slot>(
      world, pool,
      [&](std::int64_t user, Dlrmv3Slot& slot) {
        world.generate(user, slot.history);
        fill_slot(appearing, slot);
      },
      [&](std::int64_t, Dlrmv3Slot& slot) {
        Events events{
            .items = slot.items, .times = slot.times, .signals = slot.signals, .numbers = {}};
        if (options.numbers) events.numbers = {slot.history.ratings};
        writer.add_user(events);
        if (options.progress) options.progress(writer.num_events());
      });
  appearing.for_each([&](std::int64_t id) {
    writer.add_item_id(id);
    category.add_code(
        static_cast<std::int32_t>(1 + world.category(static_cast<std::uint32_t>(id))));
  });
  writer.finish();
}

}  // namespace turbogr::data
