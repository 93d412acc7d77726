#include "turbogr/data/appearing_items.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/data/synth.h"
#include "turbogr/data/synth_chunks.h"

namespace turbogr::data {
namespace {

struct StoreSlot {
  SynthHistory history;
  std::vector<std::int64_t> items;
  std::vector<std::uint32_t> signals;
  std::vector<float> play_times;
  std::vector<float> durations;
};

void add_numbers(const SynthWorld& world, std::int64_t user, StoreSlot& slot) {
  slot.play_times.clear();
  slot.durations.clear();
  for (std::size_t i = 0; i < slot.history.items.size(); ++i) {
    const SynthDetails details = world.details(user, static_cast<std::int64_t>(i),
                                               slot.history.items[i], slot.history.signals[i]);
    slot.play_times.push_back(static_cast<float>(details.play_ms));
    slot.durations.push_back(static_cast<float>(details.duration_ms));
  }
}

}  // namespace

void write_synth_store(const SynthWorld& world, ThreadPool& pool,
                       const std::filesystem::path& target, const SynthStoreOptions& options) {
  // Claimed before the work, so that a target that exists is refused at once.
  PartialFolder folder(target, options.overwrite);
  // Twice through the world: dense indices need to know every item that appears, and making a user
  // again is cheaper than keeping all of them.
  AppearingItems appearing(world.catalogue().num_items());
  for_each_synth_user<SynthHistory>(
      world, pool,
      [&](std::int64_t user, SynthHistory& history) {
        world.generate(user, history);
        for (const std::uint32_t item : history.items) appearing.mark(item);
      },
      [](std::int64_t, SynthHistory&) {});

  StoreWriter writer(
      std::move(folder),
      {.time_unit = TimeUnit::kMilliseconds,
       .num_items = appearing.count_up(),
       .user_ids = IdKind::kInt64,
       .item_ids = IdKind::kInt64,
       .signals = {"is_click", "is_like", "is_follow", "is_comment", "is_forward", "is_hate",
                   "long_view", "is_profile_enter", "is_rand"},
       .numbers = options.numbers ? std::vector<std::string>{"play_time_ms", "duration_ms"}
                                  : std::vector<std::string>{}});
  for_each_synth_user<StoreSlot>(
      world, pool,
      [&](std::int64_t user, StoreSlot& slot) {
        world.generate(user, slot.history);
        slot.items.resize(slot.history.items.size());
        slot.signals.assign(slot.history.signals.begin(), slot.history.signals.end());
        for (std::size_t i = 0; i < slot.items.size(); ++i) {
          slot.items[i] = appearing.index(slot.history.items[i]);
        }
        if (options.numbers) add_numbers(world, user, slot);
      },
      [&](std::int64_t user, StoreSlot& slot) {
        Events events{.items = slot.items,
                      .times = slot.history.times,
                      .signals = slot.signals,
                      .numbers = {}};
        if (options.numbers) events.numbers = {slot.play_times, slot.durations};
        writer.add_user(user, events);
        if (options.progress) options.progress(writer.num_events());
      });
  appearing.for_each([&](std::int64_t id) { writer.add_item_id(id); });
  writer.finish();
}

}  // namespace turbogr::data
