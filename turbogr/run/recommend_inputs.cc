#include "turbogr/run/recommend_inputs.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/field.h"
#include "turbogr/run/item_names.h"

namespace turbogr::train {
namespace {

// Counts ids that a store does not have, or throws at the first.
class UnknownIds {
 public:
  UnknownIds(const char* what, const data::Store& store, Unknown rule)
      : what_(what), store_(store), rule_(rule) {}

  void meet(const NamedId& id) {
    const std::string message = fmt::format("{}no {} '{}' in the store '{}'", id.where, what_,
                                            data::printable(id.id, 80), store_.folder().string());
    TGR_CHECK(rule_ == Unknown::kSkip, message, "; leave --unknown error out to skip it");
    if (count_++ == 0) first_ = message;
  }

  // After the last of `all`.
  void finish(std::int64_t all) const {
    if (count_ == 0) return;
    TGR_CHECK(count_<all, first_, count_> 1 ? fmt::format(", nor {} others", count_ - 1) : "",
              ": none is left");
    log::warn("{} of {} {}s skipped: {}; --unknown error would stop here", count_, all, what_,
              first_);
  }

 private:
  const char* what_;
  const data::Store& store_;
  Unknown rule_;
  std::int64_t count_ = 0;
  std::string first_;
};

}  // namespace

Unknown unknown_from_name(std::string_view name) {
  if (name == "skip") return Unknown::kSkip;
  TGR_CHECK(name == "error", "unknown ids '", name, "'; use skip or error");
  return Unknown::kError;
}

std::vector<NamedId> ids_in_file(const std::string& path, const char* wanted) {
  std::ifstream in(path, std::ios::binary);
  TGR_CHECK(in.good() && !std::filesystem::is_directory(path), "cannot read '", path,
            "'; give a file with ", wanted);
  std::vector<NamedId> ids;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    if (++number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte-order mark
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) ids.push_back({line, fmt::format("{}:{}: ", path, number)});
  }
  return ids;
}

std::vector<NamedId> ids_in_text(const std::string& list) {
  std::vector<NamedId> ids;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) ids.push_back({list.substr(begin, end - begin), ""});
    begin = end + 1;
  }
  return ids;
}

std::vector<std::int64_t> indices_of(const std::vector<NamedId>& ids, const data::IdMap& known,
                                     const char* what, const data::Store& store, Unknown unknown) {
  UnknownIds absent(what, store, unknown);
  std::vector<std::int64_t> indices;
  for (const NamedId& id : ids) {
    if (const auto index = known.find(std::string_view(id.id))) {
      indices.push_back(*index);
    } else {
      absent.meet(id);
    }
  }
  absent.finish(static_cast<std::int64_t>(ids.size()));
  return indices;
}

std::vector<HistoryEvent> read_history(const std::string& path, const data::Store& store,
                                       Unknown unknown) {
  UnknownIds absent("item", store, unknown);
  std::vector<HistoryEvent> events;
  std::optional<bool> timed;
  std::int64_t time = 0;
  const std::vector<NamedId> lines = ids_in_file(path, "one 'item' or 'item,time' a line");
  for (const auto& [line, where] : lines) {
    const std::size_t comma = line.find(',');
    const bool has_time = comma != std::string::npos;
    TGR_CHECK(has_time == timed.value_or(has_time), where, "'", data::printable(line, 80), "' has ",
              has_time ? "a" : "no",
              " time, unlike the lines before it; give every line one, or none");
    if (has_time) {
      const std::int64_t before = time;
      const char* begin = line.data() + comma + 1;
      const char* end = line.data() + line.size();
      const auto result = std::from_chars(begin, end, time);
      TGR_CHECK(result.ec == std::errc() && result.ptr == end, where, "time '",
                data::printable(std::string_view(line).substr(comma + 1), 80),
                "' is not a whole number in the store's unit");
      TGR_CHECK(!timed || time >= before, where, "time ", time,
                " comes before the one above it; list the oldest event first");
    }
    timed = has_time;
    const std::string item = line.substr(0, comma);
    if (const auto index = store.item_ids().find(std::string_view(item))) {
      events.push_back({*index, time});
    } else {
      absent.meet({item, where});
    }
  }
  absent.finish(static_cast<std::int64_t>(lines.size()));
  return events;
}

std::vector<std::int64_t> candidate_items(const Checkpoint& checkpoint, const Config& config,
                                          const data::Store& store, const CandidateRule& rule) {
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

}  // namespace turbogr::train
