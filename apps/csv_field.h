// A field of a CSV file, in quotes where it needs them.
#pragma once

#include <string>

namespace turbogr::apps {

inline std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace turbogr::apps
