#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/data/partial_logs.h"
#include "turbogr/data/synth.h"
#include "turbogr/data/synth_chunks.h"

namespace turbogr::data {
namespace {

constexpr std::array<const char*, 4> kFiles = {
    "log_standard_4_08_to_4_21_27k_part1.csv", "log_standard_4_08_to_4_21_27k_part2.csv",
    "log_standard_4_22_to_5_08_27k_part1.csv", "log_standard_4_22_to_5_08_27k_part2.csv"};
constexpr std::string_view kHeader =
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
    "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
    "is_profile_enter,is_rand,tab\n";
constexpr std::int64_t kDayMs = 86'400'000;
constexpr std::int64_t kFirstDays = 14;  // 8 to 21 April
constexpr std::int64_t kAllDays = 31;

// One line of the log: 19 numbers of 20 digits at most.
class Row {
 public:
  void add(std::int64_t value) {
    end_ = std::to_chars(end_, line_.data() + line_.size(), value).ptr;
    *end_++ = ',';
  }
  void finish(std::vector<char>& text) {
    end_[-1] = '\n';
    text.insert(text.end(), line_.data(), end_);
  }

 private:
  std::array<char, 19 * 21> line_;
  char* end_ = line_.data();
};

std::array<std::int64_t, kAllDays> day_names(const SynthPreset& preset) {
  using namespace std::chrono;
  std::array<std::int64_t, kAllDays> names;
  const sys_days first{days{(preset.begin_ms + preset.utc_offset_ms) / kDayMs}};
  for (std::int64_t day = 0; day < kAllDays; ++day) {
    const year_month_day date{first + days{day}};
    names[static_cast<std::size_t>(day)] = int{date.year()} * 10000 +
                                           static_cast<int>(unsigned{date.month()}) * 100 +
                                           static_cast<int>(unsigned{date.day()});
  }
  return names;
}

struct CsvSlot {
  SynthHistory history;
  std::array<std::vector<char>, kFiles.size()> text;
};

}  // namespace

void write_synth_csv(const SynthWorld& world, ThreadPool& pool, const std::filesystem::path& folder,
                     const SynthProgress& progress) {
  const SynthPreset& preset = world.preset();
  TGR_CHECK(preset.days == kAllDays, "synth: raw logs are in KuaiRand's format, which '",
            preset.name, "' does not fit; use --like kuairand27k, or --out for a store");
  PartialLogs logs(folder, kFiles);
  for (std::size_t i = 0; i < kFiles.size(); ++i) logs.append(i, kHeader);
  const std::array<std::int64_t, kAllDays> dates = day_names(preset);

  const auto make = [&](std::int64_t user, CsvSlot& slot) {
    world.generate(user, slot.history);
    for (std::vector<char>& text : slot.text) text.clear();
    for (std::size_t i = 0; i < slot.history.items.size(); ++i) {
      const std::uint32_t item = slot.history.items[i];
      const std::int64_t time = slot.history.times[i];
      const std::uint16_t signals = slot.history.signals[i];
      const SynthDetails details = world.details(user, static_cast<std::int64_t>(i), item, signals);
      const std::int64_t day = (time - preset.begin_ms) / kDayMs;
      const auto bit = [signals](std::uint16_t signal) { return (signals & signal) != 0 ? 1 : 0; };
      Row row;
      row.add(user);
      row.add(item);
      row.add(dates[static_cast<std::size_t>(day)]);
      row.add((time - preset.begin_ms) % kDayMs / 3'600'000 * 100);
      row.add(time);
      row.add(bit(kSynthClick));
      row.add(bit(kSynthLike));
      row.add(bit(kSynthFollow));
      row.add(bit(kSynthComment));
      row.add(bit(kSynthForward));
      row.add(bit(kSynthHate));
      row.add(bit(kSynthLongView));
      row.add(details.play_ms);
      row.add(details.duration_ms);
      row.add(details.profile_stay_ms);
      row.add(details.comment_stay_ms);
      row.add(bit(kSynthProfileEnter));
      row.add(0);
      row.add(details.tab);
      row.finish(slot.text[(day < kFirstDays ? 0u : 2u) + static_cast<unsigned>(day % 2)]);
    }
  };
  std::int64_t events = 0;
  for_each_synth_user<CsvSlot>(world, pool, make, [&](std::int64_t user, CsvSlot& slot) {
    for (std::size_t i = 0; i < kFiles.size(); ++i) {
      logs.append(i, {slot.text[i].data(), slot.text[i].size()});
    }
    events += world.length(user);
    if (progress) progress(events);
  });
  logs.publish();
}

}  // namespace turbogr::data
