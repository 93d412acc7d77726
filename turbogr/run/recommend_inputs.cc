#include "turbogr/run/recommend_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/field.h"
#include "turbogr/run/each_line.h"
#include "turbogr/run/item_names.h"

namespace turbogr::run {
namespace {

std::string place_text(const std::string& path, std::int64_t line) {
  return fmt::format("{}:{}: ", path, line);
}

// Finds ids in a store. Counts those that it does not have, or throws at the first.
class IdFinder {
 public:
  explicit IdFinder(const KnownIds& known) : known_(known) {}

  // `place()` is said before what is wrong: "users.txt:12: ".
  template <class Place>
  std::optional<std::int64_t> find(std::string_view id, const Place& place) {
    ++all_;
    const std::optional<std::int64_t> index = known_.ids.find(id);
    if (index) return index;
    if (unknown_++ > 0 && known_.unknown == Unknown::kSkip) return index;
    first_ = fmt::format("{}no {} '{}' in the store '{}'", place(), known_.what,
                         data::printable(id, 80), known_.store.folder().string());
    TGR_CHECK(known_.unknown == Unknown::kSkip, first_, "; leave --unknown error out to skip it");
    return index;
  }

  // After the last.
  void finish() const {
    if (unknown_ == 0) return;
    TGR_CHECK(unknown_ < all_, first_,
              unknown_ == 1 ? "" : fmt::format(", nor {} others", unknown_ - 1), ": none is left");
    log::warn("{} of {} {}s skipped: {}; --unknown error would stop here", unknown_, all_,
              known_.what, first_);
  }

 private:
  const KnownIds& known_;
  std::int64_t all_ = 0;
  std::int64_t unknown_ = 0;
  std::string first_;
};

}  // namespace

Unknown unknown_from_name(std::string_view name) {
  if (name == "skip") return Unknown::kSkip;
  TGR_CHECK(name == "error", "unknown ids '", name, "'; use skip or error");
  return Unknown::kError;
}

std::vector<std::int64_t> indices_in_file(const std::string& path, const KnownIds& known) {
  IdFinder finder(known);
  std::vector<std::int64_t> indices;
  for_each_line(path, kListLimits, fmt::format("one {} id a line", known.what),
                [&](std::string_view id, std::int64_t line) {
                  const auto index = finder.find(id, [&] { return place_text(path, line); });
                  if (index) indices.push_back(*index);
                });
  finder.finish();
  return indices;
}

std::vector<std::int64_t> indices_in_text(std::string_view list, const KnownIds& known) {
  IdFinder finder(known);
  std::vector<std::int64_t> indices;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) {
      const auto index = finder.find(list.substr(begin, end - begin), [] { return ""; });
      if (index) indices.push_back(*index);
    }
    begin = end + 1;
  }
  finder.finish();
  return indices;
}

std::vector<std::int64_t> indices_of(std::span<const std::string> ids, const KnownIds& known) {
  IdFinder finder(known);
  std::vector<std::int64_t> indices;
  for (const std::string& id : ids) {
    if (const auto index = finder.find(id, [] { return ""; })) indices.push_back(*index);
  }
  finder.finish();
  return indices;
}

std::vector<std::int64_t> index_of(std::string_view id, const KnownIds& known) {
  IdFinder finder(known);
  const auto index = finder.find(id, [] { return ""; });
  finder.finish();
  return {*index};
}

std::vector<HistoryEvent> read_history(const std::string& path, const data::Store& store,
                                       Unknown unknown) {
  const KnownIds known = {store, store.item_ids(), "item", unknown};
  IdFinder finder(known);
  std::vector<HistoryEvent> events;
  std::optional<bool> timed;
  std::int64_t time = 0;
  for_each_line(
      path, kListLimits, "one 'item' or 'item,time' a line",
      [&](std::string_view line, std::int64_t number) {
        const auto place = [&] { return place_text(path, number); };
        const std::size_t comma = line.find(',');
        const bool has_time = comma != std::string::npos;
        TGR_CHECK(has_time == timed.value_or(has_time), place(), "'", data::printable(line, 80),
                  "' has ", has_time ? "a" : "no",
                  " time, unlike the lines before it; give every line one, or none");
        if (has_time) {
          const std::int64_t before = time;
          const std::string_view digits = line.substr(comma + 1);
          const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), time);
          TGR_CHECK(result.ec == std::errc() && result.ptr == digits.data() + digits.size(),
                    place(), "time '", data::printable(digits, 80),
                    "' is not a whole number in the store's unit");
          TGR_CHECK(!timed || time >= before, place(), "time ", time,
                    " comes before the one above it; list the oldest event first");
        }
        timed = has_time;
        if (const auto index = finder.find(line.substr(0, comma), place)) {
          events.push_back({*index, time});
        }
      });
  finder.finish();
  return events;
}

std::vector<std::int64_t> candidate_items(const checkpoint::Checkpoint& checkpoint,
                                          const Config& config, const data::Store& store,
                                          const CandidateRule& rule) {
  std::vector<std::uint8_t> wanted(static_cast<std::size_t>(store.num_items()), rule.only ? 0 : 1);
  if (rule.only) {
    for (const std::int64_t item : *rule.only) wanted[static_cast<std::size_t>(item)] = 1;
  }
  for (const std::int64_t item : rule.without) wanted[static_cast<std::size_t>(item)] = 0;
  if (!rule.untrained) {
    const std::vector<std::uint8_t> trained = trained_items(checkpoint, config, store);
    std::int64_t left_out = 0;
    for (std::size_t item = 0; item < wanted.size(); ++item) {
      left_out += wanted[item] > trained[item] ? 1 : 0;
      wanted[item] &= trained[item];
    }
    if (left_out > 0) {
      log::warn("{} items left out: they do not occur in training (--untrained-items ranks them)",
                left_out);
    }
  }
  std::vector<std::int64_t> items;
  for (std::int64_t item = 0; item < store.num_items(); ++item) {
    if (wanted[static_cast<std::size_t>(item)] != 0) items.push_back(item);
  }
  TGR_CHECK(!items.empty(), "no item of the ", store.num_items(),
            " is left to recommend; see --allow, --block and --untrained-items");
  if (std::ssize(items) == store.num_items()) items.clear();
  return items;
}

}  // namespace turbogr::run
