// Files with words for what went wrong: a handle that closes itself, whole reads and writes, and
// read-only mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>

namespace turbogr {

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

// They go through the whole span, whatever the system splits; read_at throws on a short file.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path);
void write_at(int descriptor, std::span<const std::byte> bytes, std::int64_t offset,
              const std::filesystem::path& path);
void read_at(int descriptor, std::span<std::byte> bytes, std::int64_t offset,
             const std::filesystem::path& path);
// Whether `path` still leads to what the descriptor has open: not so once that was renamed, removed
// or replaced by another.
bool is_at(int descriptor, const std::filesystem::path& path);
// Makes the entries of a folder durable: needed after files in it were made, renamed or removed.
void sync_folder(const std::filesystem::path& folder);

// A whole file, read-only, in the address space; costs no memory until touched.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws on a file of more than `most` bytes, before there is room for it.
  explicit MappedFile(const std::filesystem::path& path,
                      std::size_t most = std::numeric_limits<std::size_t>::max());
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

}  // namespace turbogr
