#include "turbogr/core/escape.h"

#include <cstddef>

namespace turbogr {
namespace {

// Bytes of the character at the front of the text when it may be shown as it is; 0 when not.
std::size_t plain_length(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f && first != '\\' ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool control = first == 0xc2 && second < 0xa0;  // the second block of them
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return control || overlong || no_character ? 0 : length;
}

}  // namespace

std::string escaped(std::string_view text, std::string_view but) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t plain = but.find(c) != std::string_view::npos ? 1 : plain_length(text);
    if (plain > 0) {
      result += text.substr(0, plain);
      text.remove_prefix(plain);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += '\\';
    if (c == '\n' || c == '\r' || c == '\t' || c == '\\') {
      result += c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : '\\';
    } else {
      result += 'x';
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
    text.remove_prefix(1);
  }
  return result;
}

}  // namespace turbogr
