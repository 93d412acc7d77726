// A fresh folder that goes away with the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "turbogr/core/check.h"

namespace turbogr::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "turbogr_XXXXXX").string();
    TGR_CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot make a folder like '", pattern, "'");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace turbogr::test
