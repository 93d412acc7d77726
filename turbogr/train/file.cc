#include "turbogr/train/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>
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

void OutputFile::finish() {
  TGR_ASSERT(file_.get() >= 0);
  if (::fsync(file_.get()) != 0) throw_file_error("sync", path_, errno);
  file_.close();
}

std::string read_file(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
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
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_file_error("rename", from, errno);
  sync_folder(std::filesystem::path(to).parent_path());
}

}  // namespace turbogr
