// Arrow streams made by hand, as another library would hand them over.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/data/arrow/arrow_abi.h"

namespace turbogr::test {

// A column of one batch, its buffers as the format wants them.
struct ArrowValues {
  std::string name;
  std::string format;
  std::int64_t length = 0;
  std::vector<std::vector<std::byte>> buffers;  // an empty first one: nothing is missing
  std::int64_t offset = 0;
  std::vector<ArrowValues> children;
  std::vector<ArrowValues> dictionary;  // none or one
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T) + 8);  // never empty
  std::memcpy(bytes.data(), values.data(), values.size() * sizeof(T));
  return bytes;
}

inline std::vector<std::byte> bitmap(const std::vector<int>& bits) {
  if (bits.empty()) return {};
  std::vector<std::byte> bytes(bits.size() / 8 + 1);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i] != 0) bytes[i / 8] |= std::byte{1} << (i % 8);
  }
  return bytes;
}

// `there` has a 1 for each value that is not missing; empty: none is.
template <class T>
ArrowValues numbers(std::string name, std::string format, const std::vector<T>& values,
                    const std::vector<int>& there = {}) {
  return {.name = std::move(name),
          .format = std::move(format),
          .length = static_cast<std::int64_t>(values.size()),
          .buffers = {bitmap(there), bytes_of(values)}};
}

inline ArrowValues booleans(std::string name, const std::vector<int>& values,
                            const std::vector<int>& there = {}) {
  return {.name = std::move(name),
          .format = "b",
          .length = static_cast<std::int64_t>(values.size()),
          .buffers = {bitmap(there), bitmap(values)}};
}

// Format u (32-bit offsets), U (64-bit offsets) or vu (views).
inline ArrowValues strings(std::string name, std::string format,
                           const std::vector<std::string>& values,
                           const std::vector<int>& there = {}) {
  ArrowValues column = {.name = std::move(name),
                        .format = format,
                        .length = static_cast<std::int64_t>(values.size()),
                        .buffers = {bitmap(there)}};
  std::vector<char> text;
  std::vector<std::int32_t> small = {0};
  std::vector<std::int64_t> large = {0};
  std::vector<std::byte> views(16 * values.size() + 16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& value = values[i];
    const auto length = static_cast<std::int32_t>(value.size());
    std::memcpy(&views[16 * i], &length, 4);
    if (length <= 12) {
      std::memcpy(&views[16 * i + 4], value.data(), value.size());
    } else {
      const std::int32_t place[2] = {0, static_cast<std::int32_t>(text.size())};
      std::memcpy(&views[16 * i + 4], value.data(), 4);
      std::memcpy(&views[16 * i + 8], place, sizeof place);
    }
    text.insert(text.end(), value.begin(), value.end());
    small.push_back(static_cast<std::int32_t>(text.size()));
    large.push_back(static_cast<std::int64_t>(text.size()));
  }
  if (format == "vu") {
    column.buffers.push_back(views);
    column.buffers.push_back(bytes_of(text));
    column.buffers.push_back(bytes_of(std::vector<std::int64_t>{std::ssize(text)}));
  } else {
    column.buffers.push_back(format == "U" ? bytes_of(large) : bytes_of(small));
    column.buffers.push_back(bytes_of(text));
  }
  return column;
}

inline ArrowValues list(std::string name, const std::vector<std::int32_t>& offsets,
                        ArrowValues values, const std::vector<int>& there = {}) {
  return {.name = std::move(name),
          .format = "+l",
          .length = static_cast<std::int64_t>(offsets.size()) - 1,
          .buffers = {bitmap(there), bytes_of(offsets)},
          .children = {std::move(values)}};
}

inline ArrowValues dictionary(ArrowValues indices, ArrowValues values) {
  indices.dictionary = {std::move(values)};
  return indices;
}

// Batches of the same columns. It counts what it has lent and not got back.
class ArrowSource {
 public:
  explicit ArrowSource(std::vector<std::vector<ArrowValues>> batches, std::string failure = "")
      : batches_(std::move(batches)), failure_(std::move(failure)) {
    stream_.get_schema = [](ArrowArrayStream* stream, ArrowSchema* out) {
      auto& self = *static_cast<ArrowSource*>(stream->private_data);
      *out = self.schema({.name = "", .format = "+s", .children = self.batches_.at(0)});
      return 0;
    };
    stream_.get_next = [](ArrowArrayStream* stream, ArrowArray* out) {
      auto& self = *static_cast<ArrowSource*>(stream->private_data);
      *out = {};
      if (self.next_ == self.batches_.size()) return self.failure_.empty() ? 0 : EIO;
      const std::vector<ArrowValues>& columns = self.batches_[self.next_++];
      self.tables_.push_back({.name = "",
                              .format = "+s",
                              .length = columns.empty() ? 0 : columns[0].length,
                              .buffers = {{}},
                              .children = columns});
      *out = self.array(self.tables_.back());
      return 0;
    };
    stream_.get_last_error = [](ArrowArrayStream* stream) {
      return static_cast<ArrowSource*>(stream->private_data)->failure_.c_str();
    };
    stream_.release = [](ArrowArrayStream* stream) { stream->release = nullptr; };
    stream_.private_data = this;
  }
  ArrowSource(const ArrowSource&) = delete;
  ArrowSource& operator=(const ArrowSource&) = delete;

  ArrowArrayStream* stream() { return &stream_; }
  int lent() const { return lent_; }

 private:
  template <class Node>
  void lend(Node& node) {
    ++lent_;
    node.private_data = this;
    node.release = [](Node* given) {
      --static_cast<ArrowSource*>(given->private_data)->lent_;
      given->release = nullptr;
    };
  }

  ArrowSchema schema(const ArrowValues& column) {
    ArrowSchema node = {};
    node.format = texts_.emplace_back(column.format).c_str();
    node.name = texts_.emplace_back(column.name).c_str();
    auto& children = schema_children_.emplace_back();
    for (const ArrowValues& child : column.children) {
      children.push_back(&schemas_.emplace_back(schema(child)));
      children.back()->release = nullptr;
    }
    node.n_children = std::ssize(children);
    node.children = children.data();
    if (!column.dictionary.empty()) {
      node.dictionary = &schemas_.emplace_back(schema(column.dictionary[0]));
    }
    if (column.format == "+s") lend(node);
    return node;
  }

  ArrowArray array(const ArrowValues& column) {
    ArrowArray node = {};
    node.length = column.length;
    node.offset = column.offset;
    node.null_count = column.buffers.empty() || column.buffers[0].empty() ? 0 : -1;
    auto& buffers = buffers_.emplace_back();
    for (const auto& buffer : column.buffers) {
      buffers.push_back(buffer.empty() ? nullptr : buffer.data());
    }
    node.n_buffers = std::ssize(buffers);
    node.buffers = buffers.data();
    auto& children = array_children_.emplace_back();
    for (const ArrowValues& child : column.children) {
      children.push_back(&arrays_.emplace_back(array(child)));
    }
    node.n_children = std::ssize(children);
    node.children = children.data();
    if (!column.dictionary.empty()) {
      node.dictionary = &arrays_.emplace_back(array(column.dictionary[0]));
    }
    if (column.format == "+s") lend(node);
    return node;
  }

  std::vector<std::vector<ArrowValues>> batches_;
  std::string failure_;
  std::size_t next_ = 0;
  int lent_ = 0;
  ArrowArrayStream stream_ = {};
  // Lists, so that what nodes point to stays where it is.
  std::list<ArrowValues> tables_;
  std::list<std::string> texts_;
  std::list<ArrowSchema> schemas_;
  std::list<ArrowArray> arrays_;
  std::list<std::vector<ArrowSchema*>> schema_children_;
  std::list<std::vector<ArrowArray*>> array_children_;
  std::list<std::vector<const void*>> buffers_;
};

}  // namespace turbogr::test
