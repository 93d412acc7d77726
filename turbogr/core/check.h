// Errors. TGR_CHECK is for what a caller can fix: it throws turbogr::Error, whose text says what
// was found, what was wanted and what to do next. TGR_ASSERT is for what only a bug can cause.
//
//   TGR_CHECK(out.shape[0] == x.batch(), "jagged_mean: out has ", out.shape[0], " rows for ",
//             x.batch(), " sequences");
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace turbogr {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Memory that could not be had: whoever planned it knows which knob makes it less.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

namespace detail {

template <class... Parts>
[[noreturn]] void throw_error(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace detail
}  // namespace turbogr

#define TGR_CHECK(condition, ...)                                  \
  do {                                                             \
    if (!(condition)) ::turbogr::detail::throw_error(__VA_ARGS__); \
  } while (false)

// The file's name alone: with its path, two builds of one commit would differ.
#define TGR_ASSERT(condition)                                                                   \
  do {                                                                                          \
    if (!(condition)) ::turbogr::detail::assertion_failed(#condition, __FILE_NAME__, __LINE__); \
  } while (false)
