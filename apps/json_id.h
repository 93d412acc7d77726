// Ids in JSON as the type they are of: numbers where the store has numbers, else text, which is
// UTF-8.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/data/field.h"
#include "turbogr/data/store.h"

namespace turbogr::apps {

// Ids are whatever bytes the log had, and these forms have only UTF-8: another id in its place
// would be a wrong answer.
inline const std::string& utf8_id(const std::string& id) {
  try {
    static_cast<void>(nlohmann::json(id).dump());
  } catch (const nlohmann::json::type_error&) {
    detail::throw_error("the id '", escaped(id),
                        "' is no UTF-8, and JSON and Parquet hold nothing ",
                        "else; write .csv, which takes any bytes");
  }
  return id;
}

inline nlohmann::ordered_json item_json(const data::Store& store, std::int64_t item) {
  if (store.item_ids().kind() == data::IdKind::kString) {
    return utf8_id(store.item_ids().text(item));
  }
  return store.item_ids().integer(item);
}

// `user` is what they were called: of a store of numbers perhaps by no number.
inline nlohmann::ordered_json user_json(const data::Store& store, const std::string& user) {
  std::int64_t number = 0;
  if (store.user_ids().kind() != data::IdKind::kString &&
      data::parse_integer(user, number) == data::FieldError::kNone) {
    return number;
  }
  return utf8_id(user);
}

}  // namespace turbogr::apps
