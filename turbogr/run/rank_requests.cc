#include "turbogr/run/rank_requests.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/log.h"

namespace turbogr::run {
namespace {

std::int64_t seconds_in(const data::Store& store, std::int64_t time) {
  if (store.time_unit() != data::TimeUnit::kMilliseconds) return time;
  return time / 1000 - (time % 1000 < 0 ? 1 : 0);
}

// Ids may be numbers or text.
std::string id_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
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
  std::ifstream in(path);
  TGR_CHECK(in.good(), "cannot read '", path, "'; give a file with a request a line");
  std::vector<RankRequest> requests;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    try {
      const nlohmann::json fields = nlohmann::json::parse(line);
      std::vector<std::string> items;
      for (const nlohmann::json& item : fields.at("items")) items.push_back(id_text(item));
      std::optional<std::int64_t> at;
      if (fields.contains("at")) at = fields.at("at").get<std::int64_t>();
      requests.push_back(rank_request(known.store, id_text(fields.at("user")),
                                      indices_of(items, known), at, where));
      const nlohmann::json context = fields.value("context", nlohmann::json::object());
      for (const auto& [feature, value] : context.items()) {
        add_context(known.store, feature, id_text(value), requests.back());
      }
    } catch (const nlohmann::json::exception&) {
      detail::throw_error(where,
                          "no request; wanted a line such as {\"user\": 7, \"items\": [1, 2], "
                          "\"at\": 1651766400000, \"context\": {\"tab\": 1}}, the last two if "
                          "wanted");
    } catch (const Error& error) {
      detail::throw_error(where, error.what());
    }
  }
  TGR_CHECK(!requests.empty(), "'", path, "' has no requests; give one a line");
  return requests;
}

}  // namespace turbogr::run
