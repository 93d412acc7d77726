// Files that survive a crash: written beside, flushed to the disk, renamed into place. Every
// failure is an Error with the path and the system's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "turbogr/core/file.h"

namespace turbogr {

// A file being written, front to back or in pieces.
class OutputFile {
 public:
  explicit OutputFile(std::string path);  // made new, or emptied

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Any thread, in any order; the disk begins with it at once.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void finish();  // to the disk, then closes

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }  // written front to back

 private:
  std::string path_;
  FileHandle file_;
  std::uint64_t bytes_ = 0;
};

// A plain file of `most` bytes at most: what is far larger than it can be is another file.
std::string read_file(const std::string& path, std::size_t most = std::size_t{1} << 30);

// Where to write what shall become the file `path`: beside it, or there itself where it is a device
// or a pipe, which must not be replaced. A link is followed.
class OutputTarget {
 public:
  explicit OutputTarget(const std::string& path);
  ~OutputTarget();  // what was not put in place is removed
  OutputTarget(const OutputTarget&) = delete;
  OutputTarget& operator=(const OutputTarget&) = delete;

  const std::string& writing() const { return writing_; }
  void put_in_place();  // durably, in one step

 private:
  std::string path_;
  std::string writing_;
  bool done_ = false;
};

// The whole content or the old one, never half, also after a crash.
void replace_file(const std::string& path, std::string_view content);

// Renames `from` to `to` (on the same disk) and makes the change durable.
void rename_durably(const std::string& from, const std::string& to);

}  // namespace turbogr
