#include "turbogr/run/rank_requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/json_number.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/log.h"
#include "turbogr/core/nearest_name.h"
#include "turbogr/run/each_line.h"

namespace turbogr::run {
namespace {

// A request names up to some hundred thousand items.
constexpr LineLimits kRequestLimits = {std::size_t{16} << 20, std::size_t{2} << 30};

std::int64_t seconds_in(const data::Store& store, std::int64_t time) {
  if (store.time_unit() != data::TimeUnit::kMilliseconds) return time;
  return time / 1000 - (time % 1000 < 0 ? 1 : 0);
}

// "a list", for messages.
const char* kind_of(const nlohmann::json& value) {
  return value.is_object()    ? "an object"
         : value.is_array()   ? "a list"
         : value.is_string()  ? "text"
         : value.is_boolean() ? "true or false"
         : value.is_null()    ? "null"
                              : "a number";
}

// Ids and values may be whole numbers or text.
std::string id_text(const std::string& key, const nlohmann::json& value) {
  TGR_CHECK(value.is_number_integer() || (value.is_string() && !value.get<std::string>().empty()),
            "\"", key, "\" is ", value.dump(), " (", kind_of(value),
            "); wanted: a whole number or text that is not empty");
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void check_request_keys(const nlohmann::json& fields) {
  TGR_CHECK(fields.is_object(), "the line is ", kind_of(fields), "; wanted: an object");
  const std::vector<std::string> known = {"user", "items", "at", "context"};
  for (const auto& [key, value] : fields.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = nearest_name(key, known);
    detail::throw_error("unknown key \"", key, "\"; ",
                        nearest.empty() ? "" : "did you mean \"" + nearest + "\"? ",
                        "A request has user and items, and at and context if wanted");
  }
  for (const char* key : {"user", "items"}) {
    TGR_CHECK(fields.contains(key), "no \"", key, "\"; a request has user and items");
  }
}

std::vector<std::string> item_texts(const nlohmann::json& items) {
  TGR_CHECK(items.is_array() && !items.empty(), "\"items\" is ", items.dump(),
            "; wanted: a list of one or more items");
  std::vector<std::string> texts;
  for (const nlohmann::json& item : items) texts.push_back(id_text("items", item));
  return texts;
}

// In the store's unit.
std::optional<std::int64_t> time_of(const nlohmann::json& fields) {
  if (!fields.contains("at")) return std::nullopt;
  const nlohmann::json& at = fields.at("at");
  TGR_CHECK(is_whole_number<std::int64_t>(at), "\"at\" is ", at.dump(), " (", kind_of(at),
            "); wanted: a whole number of 64 bits, a time in the store's unit");
  return at.get<std::int64_t>();
}

RankRequest parse_request(std::string_view line, const KnownIds& known, const std::string& where) {
  const nlohmann::json fields = parse_json(line);
  TGR_CHECK(!fields.is_discarded(),
            "the line is no JSON; wanted one such as {\"user\": 7, \"items\": [1, 2], "
            "\"at\": 1651766400000, \"context\": {\"tab\": 1}}, the last two if wanted");
  check_request_keys(fields);
  RankRequest request =
      rank_request(known.store, id_text("user", fields.at("user")),
                   indices_of(item_texts(fields.at("items")), known), time_of(fields), where);
  const nlohmann::json context = fields.value("context", nlohmann::json::object());
  TGR_CHECK(context.is_object(), "\"context\" is ", context.dump(), " (", kind_of(context),
            "); wanted: an object such as {\"tab\": \"home\"}");
  for (const auto& [feature, value] : context.items()) {
    add_context(known.store, feature, id_text(feature, value), request);
  }
  return request;
}

}  // namespace

RankRequest rank_request(const data::Store& store, const std::string& user,
                         std::vector<std::int64_t> items, std::optional<std::int64_t> at,
                         const std::string& where) {
  RankRequest request = {user, {}};
  const auto found = store.user_ids().find(std::string_view(user));
  if (!found) {
    log::warn("{}user '{}' is not in '{}': judged without a history", where, user,
              store.folder().string());
  }
  request.sample.user = found.value_or(-1);
  request.sample.items = std::move(items);
  request.sample.has_time = at.has_value();
  if (at) request.sample.seconds = seconds_in(store, *at);
  TGR_CHECK(!at || store.has_times(), "a time was given, and '", store.folder().string(),
            "' has none; leave it out");
  return request;
}

void add_context(const data::Store& store, const std::string& feature, const std::string& value,
                 RankRequest& request) {
  const data::FeatureColumn column = store.feature(data::FeatureOwner::kEvent, feature);
  TGR_CHECK(column.about.kind == data::FeatureKind::kCategory, "context '", feature, "' is a ",
            name_of(column.about.kind), "; only categories can be given");
  std::int32_t code = 1;
  while (code <= column.about.values && column.value(code) != value) ++code;
  if (code > column.about.values) {
    log::warn("context {} = '{}': no event of the store has that value, so it counts as unknown",
              feature, value);
    code = 0;
  }
  request.sample.values.push_back({feature, code});
}

std::vector<RankRequest> read_rank_requests(const std::string& path, const KnownIds& known) {
  std::vector<RankRequest> requests;
  for_each_line(path, kRequestLimits, "a request a line",
                [&](std::string_view line, std::int64_t number) {
                  if (line.find_first_not_of(" \t") == std::string_view::npos) return;
                  const std::string where = path + ":" + std::to_string(number) + ": ";
                  try {
                    requests.push_back(parse_request(line, known, where));
                  } catch (const Error& error) {
                    detail::throw_error(where, error.what());
                  }
                });
  TGR_CHECK(!requests.empty(), "'", path, "' has no requests; give one a line");
  return requests;
}

}  // namespace turbogr::run
