// Files with words for what went wrong: a handle that closes itself, buffered writing with a
// checksum on the way, and read-only mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "turbogr/data/checksum.h"

namespace turbogr::data {

// "cannot write '/x/y': No space left on device; ..." from errno, with advice where there is some.
[[noreturn]] void throw_file_error(const char* verb, const std::filesystem::path& path, int error);

class FileHandle {
 public:
  FileHandle() = default;
  FileHandle(const std::filesystem::path& path, int flags);  // throws; new files get mode 0666
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle() { close(); }

  int get() const { return descriptor_; }
  void close() noexcept;

 private:
  int descriptor_ = -1;
};

// Both go through the whole span, whatever the system splits; read_at throws on a short file.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path);
void read_at(int descriptor, std::span<std::byte> bytes, std::int64_t offset,
             const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& folder);

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

// A whole file, read-only, in the address space; costs no memory until touched.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace turbogr::data
