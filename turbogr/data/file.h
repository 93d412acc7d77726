// Buffered writing with a checksum on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "turbogr/core/file.h"
#include "turbogr/data/checksum.h"

namespace turbogr::data {

// Appends to a new file. Nothing is whole before close(), which also forces it to the disk when
// asked.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path, std::size_t buffer_bytes = 1 << 18);

  void append(const void* data, std::size_t bytes);
  template <class T>
  void append_value(T value) {
    if (used_ + sizeof(T) > capacity_) flush();
    __builtin_memcpy(buffer_.get() + used_, &value, sizeof(T));
    used_ += sizeof(T);
  }
  void flush();
  void close(bool sync);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t bytes() const { return written_ + static_cast<std::int64_t>(used_); }
  std::string checksum() const { return checksum_.hex(); }  // of what was flushed

 private:
  std::filesystem::path path_;
  FileHandle file_;
  std::size_t capacity_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t used_ = 0;
  std::int64_t written_ = 0;
  Checksum checksum_;
};

}  // namespace turbogr::data
