#include "turbogr/data/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace turbogr::data {

FileWriter::FileWriter(std::filesystem::path path, std::size_t buffer_bytes)
    : path_(std::move(path)),
      file_(path_, O_WRONLY | O_CREAT | O_TRUNC),
      capacity_(buffer_bytes),
      buffer_(new std::byte[buffer_bytes]) {}

void FileWriter::append(const void* data, std::size_t bytes) {
  if (used_ + bytes > capacity_) flush();
  if (bytes > capacity_) {
    const std::span<const std::byte> all(static_cast<const std::byte*>(data), bytes);
    checksum_.update(data, bytes);
    write_all(file_.get(), all, path_);
    written_ += static_cast<std::int64_t>(bytes);
    return;
  }
  if (bytes > 0) std::memcpy(buffer_.get() + used_, data, bytes);
  used_ += bytes;
}

void FileWriter::flush() {
  checksum_.update(buffer_.get(), used_);
  write_all(file_.get(), {buffer_.get(), used_}, path_);
  written_ += static_cast<std::int64_t>(used_);
  used_ = 0;
}

void FileWriter::close(bool sync) {
  flush();
  if (sync && ::fsync(file_.get()) != 0) throw_file_error("sync", path_, errno);
  file_.close();
}

}  // namespace turbogr::data
