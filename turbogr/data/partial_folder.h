// A folder under work, `<target>.partial-<pid>`, that becomes the target in one step or not at all.
// It goes when an error or an interrupt unwinds the stack; after kill -9 it stays, never opens as a
// store, and the next writer of the same target clears it away.
#pragma once

#include <filesystem>

#include "turbogr/core/file.h"

namespace turbogr::data {

class PartialFolder {
 public:
  // Clears what dead writers of this target left, then makes the folder, and those above it that
  // are missing. Throws when the target exists and may not be replaced.
  explicit PartialFolder(const std::filesystem::path& target, bool replace = false);
  ~PartialFolder();
  PartialFolder(PartialFolder&& other) noexcept;
  PartialFolder& operator=(PartialFolder&&) = delete;

  const std::filesystem::path& path() const { return folder_; }
  const std::filesystem::path& target() const { return target_; }

  // Renames the folder to its target. Its files must be on the disk already.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path folder_;  // empty once published
  FileHandle lock_;               // held while this process lives: tells others it is not dead
  bool replace_ = false;
};

bool is_partial_folder(const std::filesystem::path& path);

}  // namespace turbogr::data
