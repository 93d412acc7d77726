#include "turbogr/core/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr {

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), file_(path_, O_WRONLY | O_CREAT | O_TRUNC) {}

void OutputFile::write(const void* data, std::size_t bytes) {
  TGR_ASSERT(file_.get() >= 0);
  write_all(file_.get(), {static_cast<const std::byte*>(data), bytes}, path_);
  bytes_ += bytes;
}

void OutputFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  TGR_ASSERT(file_.get() >= 0);
  const auto begin = static_cast<std::int64_t>(offset);
  turbogr::write_at(file_.get(), {static_cast<const std::byte*>(data), bytes}, begin, path_);
  // Else the system waits until much is unwritten, and finish for all of it. Only a hint.
  ::sync_file_range(file_.get(), begin, static_cast<std::int64_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void OutputFile::finish() {
  TGR_ASSERT(file_.get() >= 0);
  // A pipe or a device cannot be synced.
  if (::fsync(file_.get()) != 0 && errno != EINVAL) throw_file_error("sync", path_, errno);
  file_.close();
}

std::string read_file(const std::string& path, std::size_t most) {
  const MappedFile file(path, most);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

OutputTarget::OutputTarget(const std::string& path) : path_(path) {
  namespace fs = std::filesystem;
  std::error_code error;
  TGR_CHECK(!fs::is_directory(path, error), "'", path, "' is a folder; name the file to write");
  if (fs::is_symlink(path, error)) {
    const fs::path target = fs::weakly_canonical(path, error);
    if (!error) path_ = target.string();
  }
  const bool special = fs::exists(path_, error) && !fs::is_regular_file(path_, error);
  writing_ = special ? path_ : path_ + ".partial";
}

OutputTarget::~OutputTarget() {
  if (!done_ && writing_ != path_) ::unlink(writing_.c_str());
}

void OutputTarget::put_in_place() {
  if (writing_ != path_) rename_durably(writing_, path_);
  done_ = true;
}

void replace_file(const std::string& path, std::string_view content) {
  OutputTarget target(path);
  OutputFile file(target.writing());
  file.write(content);
  file.finish();
  target.put_in_place();
}

void rename_durably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_file_error("rename", from, errno);
  sync_folder(std::filesystem::path(to).parent_path());
}

}  // namespace turbogr
