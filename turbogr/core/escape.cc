#include "turbogr/core/escape.h"

#include <cstddef>

#include "turbogr/core/utf8.h"

namespace turbogr {
namespace {

// Bytes of the character at the front of the text when it may be shown as it is; 0 when not.
std::size_t plain_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return first >= 0x20 && first != 0x7f && first != '\\' ? 1 : 0;
  const std::size_t length = utf8_length(text);
  const bool control = first == 0xc2 && length > 0 && static_cast<unsigned char>(text[1]) < 0xa0;
  return control ? 0 : length;  // the second block of them
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
