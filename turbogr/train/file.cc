#include "turbogr/train/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr {
namespace {

[[noreturn]] void fail(const char* verb, const std::string& path) {
  const int code = errno;
  detail::throw_error("cannot ", verb, " '", path, "': ", std::strerror(code),
                      code == ENOSPC || code == EDQUOT || code == EFBIG
                          ? "; free some room or choose another folder"
                          : "");
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Closes on every way out of a scope.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail("create", path_);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(const void* data, std::size_t bytes) {
  TGR_ASSERT(descriptor_ >= 0);
  append_all(descriptor_, path_, {static_cast<const char*>(data), bytes});
  bytes_ += bytes;
}

void OutputFile::finish() {
  TGR_ASSERT(descriptor_ >= 0);
  if (::fsync(descriptor_) != 0) fail("flush", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close", path_);
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) fail("open", path);
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail("read", path);
  TGR_CHECK(S_ISREG(status.st_mode), "cannot read '", path, "': it is not a file");
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (bytes_ == 0) return;
  void* memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (memory == MAP_FAILED) fail("map", path);
  ::madvise(memory, bytes_, MADV_SEQUENTIAL);
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

std::string read_file(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), file.bytes()};
}

void append_all(int descriptor, const std::string& path, std::string_view content) {
  // Linux writes at most 2 GiB a call.
  constexpr std::size_t kMost = std::size_t{1} << 30;
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), std::min(content.size(), kMost));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

void replace_file(const std::string& path, std::string_view content) {
  const std::string partial = path + ".partial";
  try {
    OutputFile file(partial);
    file.write(content);
    file.finish();
    rename_durably(partial, path);
  } catch (const Error&) {
    ::unlink(partial.c_str());
    throw;
  }
}

void rename_durably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail("rename", from);
  sync_folder(parent_of(to));
}

void sync_folder(const std::string& path) {
  const Descriptor folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.value < 0) fail("open", path);
  if (::fsync(folder.value) != 0) fail("flush", path);
}

}  // namespace turbogr
