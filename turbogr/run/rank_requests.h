// What a ranking model is asked: which of these items, for this user, now, seen there. Users, items
// and contexts by the ids and values of the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/store.h"
#include "turbogr/run/recommend_inputs.h"

namespace turbogr::run {

struct RankRequest {
  std::string user;  // the id as it was given
  data::SampleRequest sample;
};

// A user that the store does not have is judged without a history, with a warning that begins with
// `where` ("requests.jsonl:12: ", or nothing). `items` are indices; `at`: the time in the store's
// unit, nothing: after the user's last event.
RankRequest rank_request(const data::Store& store, const std::string& user,
                         std::vector<std::int64_t> items, std::optional<std::int64_t> at,
                         const std::string& where = "");
// A feature of events whose value is known. Throws where it is no category of the store; a value
// that no event has counts as unknown, with a warning.
void add_context(const data::Store& store, const std::string& feature, const std::string& value,
                 RankRequest& request);

// A request a line, as JSON: {"user": 7, "items": [1, 2]}, "at" and "context" if wanted.
std::vector<RankRequest> read_rank_requests(const std::string& path, const KnownIds& known);

}  // namespace turbogr::run
