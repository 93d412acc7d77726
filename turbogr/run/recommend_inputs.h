// What recommendations are asked for: users, items and histories by the ids of the log. Ids that
// the store does not have are skipped and counted, or an error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/data/store.h"
#include "turbogr/run/config.h"
#include "turbogr/run/history.h"

namespace turbogr::run {

enum class Unknown : std::uint8_t { kSkip, kError };
Unknown unknown_from_name(std::string_view name);  // skip, error; throws on another

struct KnownIds {
  const data::Store& store;
  const data::IdMap& ids;
  const char* what;  // "user" or "item"
  Unknown unknown = Unknown::kSkip;
};

// Indices of ids, in their order: one a line of a file or a pipe, packed or not, between commas, or
// in a list.
// Throws when not one is known; warns of those skipped.
std::vector<std::int64_t> indices_in_file(const std::string& path, const KnownIds& known);
std::vector<std::int64_t> indices_in_text(std::string_view list, const KnownIds& known);
std::vector<std::int64_t> indices_of(std::span<const std::string> ids, const KnownIds& known);
std::vector<std::int64_t> index_of(std::string_view id, const KnownIds& known);  // of this one

// Lines "item" or "item,time", oldest first; all of them with a time or none.
std::vector<HistoryEvent> read_history(const std::string& path, const data::Store& store,
                                       Unknown unknown);

// Which items may be recommended at all, by their indices.
struct CandidateRule {
  std::optional<std::vector<std::int64_t>> only;  // nothing: all of them
  std::vector<std::int64_t> without;
  bool untrained = false;  // also those that do not occur in training
};
// In ascending order; empty where all may. Throws when none is left; warns of untrained ones.
std::vector<std::int64_t> candidate_items(const checkpoint::Checkpoint& checkpoint,
                                          const Config& config, const data::Store& store,
                                          const CandidateRule& rule);

}  // namespace turbogr::run
