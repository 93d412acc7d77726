// JSON of a file that somebody may have forged.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace turbogr {

// Far deeper than anything this program writes. nlohmann reads any depth in a loop, but copies,
// compares and writes by calling itself: a million brackets would use up the stack.
inline bool nests_too_deep(std::string_view json) {
  constexpr int kDeepest = 100;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > kDeepest) return true;
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

// Throws nothing: what is not JSON, or nests too deep, comes back discarded, and then at() throws
// what it throws for a missing key.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (nests_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace turbogr
