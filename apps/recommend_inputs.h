// What `turbogr recommend` is asked for: users, items and histories by the ids of the log. Ids that
// the store does not have are skipped and counted, or an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/store.h"
#include "turbogr/run/history.h"

namespace turbogr::apps {

enum class Unknown : std::uint8_t { kSkip, kError };
Unknown unknown_from_name(std::string_view name);  // skip, error; throws on another

struct KnownIds {
  const data::Store& store;
  const data::IdMap& ids;
  const char* what;  // "user" or "item"
  Unknown unknown = Unknown::kSkip;
};

// Indices of ids, in their order: one a line of a file or a pipe, packed or not, or between commas.
// Throws when not one is known; warns of those skipped.
std::vector<std::int64_t> indices_in_file(const std::string& path, const KnownIds& known);
std::vector<std::int64_t> indices_in_text(std::string_view list, const KnownIds& known);
std::vector<std::int64_t> index_of(std::string_view id, const KnownIds& known);  // of this one

// Lines "item" or "item,time", oldest first; all of them with a time or none.
std::vector<train::HistoryEvent> read_history(const std::string& path, const data::Store& store,
                                              Unknown unknown);

}  // namespace turbogr::apps
