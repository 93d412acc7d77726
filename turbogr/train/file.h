// Files that survive a crash: written beside, flushed to the disk, renamed into place. Every
// failure is an Error with the path and the system's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace turbogr {

// A file being written, front to back.
class OutputFile {
 public:
  explicit OutputFile(std::string path);  // made new, or emptied
  ~OutputFile();                          // closes; what was not finished may be lost
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void finish();  // to the disk, then closes

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

// A file mapped for reading; empty files map to nothing.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

std::string read_file(const std::string& path);

// Writes all of it to an open file; `path` is for the message when that fails.
void append_all(int descriptor, const std::string& path, std::string_view content);

// The whole content or the old one, never half, also after a crash.
void replace_file(const std::string& path, std::string_view content);

// Renames `from` to `to` (on the same disk) and makes the change durable.
void rename_durably(const std::string& from, const std::string& to);

// Makes the entries of a folder durable: needed after files in it were made, renamed or removed.
void sync_folder(const std::string& path);

}  // namespace turbogr
