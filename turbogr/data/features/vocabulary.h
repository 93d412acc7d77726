// The distinct values of a feature while it is read, numbered from 1 by first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace turbogr::data {

class Vocabulary {
 public:
  Vocabulary();

  std::int32_t code_of(std::string_view value);  // a new one's when it is new; not for empty ones
  std::string_view value(std::int32_t code) const;
  std::int32_t size() const { return static_cast<std::int32_t>(ends_.size()); }
  std::size_t bytes() const;  // of memory, about

  // Codes in ascending order of their values: by value when all are integers, else by byte.
  std::vector<std::int32_t> sorted() const;

 private:
  void grow();

  std::string text_;  // end to end
  std::vector<std::uint64_t> ends_;
  std::vector<std::int32_t> slots_;  // codes; 0: free
};

}  // namespace turbogr::data
