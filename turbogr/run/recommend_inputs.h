// What recommendations are asked for: users, items and histories by the ids of the log. Ids that
// the store does not have are skipped and counted, or an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/data/store.h"
#include "turbogr/run/config.h"
#include "turbogr/run/history.h"

namespace turbogr::train {

enum class Unknown : std::uint8_t { kSkip, kError };
Unknown unknown_from_name(std::string_view name);  // skip, error; throws on another

struct NamedId {
  std::string id;
  std::string where;  // "users.txt:12: ", for messages; empty on the command line
};
std::vector<NamedId> ids_in_file(const std::string& path, const char* wanted);  // one a line
std::vector<NamedId> ids_in_text(const std::string& list);                      // between commas

// Indices of the ids, in their order. Throws when not one is known; warns of those skipped. `what`
// is "user" or "item".
std::vector<std::int64_t> indices_of(const std::vector<NamedId>& ids, const data::IdMap& known,
                                     const char* what, const data::Store& store, Unknown unknown);

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
std::vector<std::int64_t> candidate_items(const Checkpoint& checkpoint, const Config& config,
                                          const data::Store& store, const CandidateRule& rule);

}  // namespace turbogr::train
