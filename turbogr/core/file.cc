#include "turbogr/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr {

void throw_file_error(const char* verb, const std::filesystem::path& path, int error) {
  const char* advice = "";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    advice = "; free some room there or write to another disk";
  } else if (error == EACCES || error == EPERM || error == EROFS) {
    advice = "; check the permissions";
  } else if (error == ENOENT) {
    advice = "; check the path";
  }
  detail::throw_error("cannot ", verb, " '", path.string(), "': ", std::strerror(error), advice);
}

FileHandle::FileHandle(const std::filesystem::path& path, int flags)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw_file_error((flags & O_CREAT) != 0 ? "create" : "open", path, errno);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void FileHandle::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void write_all(int descriptor, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void write_at(int descriptor, std::span<const std::byte> bytes, std::int64_t offset,
              const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void read_at(int descriptor, std::span<std::byte> bytes, std::int64_t offset,
             const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("read", path, errno);
    TGR_CHECK(count > 0, "'", path.string(), "' ends early, at byte ", offset);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

bool is_at(int descriptor, const std::filesystem::path& path) {
  struct stat open = {}, there = {};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

void sync_folder(const std::filesystem::path& folder) {
  const FileHandle handle(folder.empty() ? std::filesystem::path(".") : folder,
                          O_RDONLY | O_DIRECTORY);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to do then.
  if (::fsync(handle.get()) != 0 && errno != EINVAL) throw_file_error("sync", folder, errno);
}

MappedFile::MappedFile(const std::filesystem::path& path, std::size_t most) {
  const FileHandle file(path, O_RDONLY | O_NONBLOCK);  // to open a pipe would wait for its writer
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) throw_file_error("read", path, errno);
  TGR_CHECK(S_ISREG(status.st_mode), "'", path.string(),
            "' is not a plain file but a folder, pipe or device; name or restore the file");
  size_ = static_cast<std::size_t>(status.st_size);
  TGR_CHECK(size_ <= most, "'", path.string(), "' has ", size_, " bytes; at most ", most,
            " are wanted here: it is damaged or another file");
  if (size_ == 0) return;  // an empty mapping does not exist
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) throw_file_error("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace turbogr
