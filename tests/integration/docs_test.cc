// What the documents say can be done: the program knows every command and option in them, make
// knows every word, and every relative link leads somewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/support/program.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> documents() {
  const fs::path source = TGR_SOURCE_DIR;
  std::vector<fs::path> found = {source / "README.md", source / "turbogr" / "README.md",
                                 source / "CONTRIBUTING.md", source / "CHANGELOG.md",
                                 source / "SECURITY.md"};
  for (const auto& entry : fs::directory_iterator(source / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  return found;
}

// Lines of fenced sh blocks, comments cut off, continued lines joined.
std::vector<std::string> commands_of(const std::string& text) {
  std::vector<std::string> commands;
  std::istringstream lines(text);
  bool shell = false;
  bool continued = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      shell = !shell && line == "```sh";
      continue;
    }
    if (!shell) continue;
    line = std::regex_replace(line, std::regex("\\s+#.*$|^#.*$"), "");
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.pop_back();
    if (continued) {
      commands.back() += line;
    } else if (!line.empty()) {
      commands.push_back(line);
    }
    continued = goes_on;
  }
  return commands;
}

TEST(Docs, NameOnlyCommandsAndOptionsThatExist) {
  const std::string makefile = text_of(fs::path(TGR_SOURCE_DIR) / "Makefile");
  int seen = 0;
  for (const fs::path& path : documents()) {
    for (const std::string& command : commands_of(text_of(path))) {
      SCOPED_TRACE(path.string() + ": " + command);
      if (std::smatch word; std::regex_search(command, word, std::regex("^make ([a-z0-9-]+)"))) {
        EXPECT_NE(makefile.find(fmt::format("\n{}:", word[1].str())), std::string::npos);
        ++seen;
      }
      if (!command.starts_with("build/turbogr")) continue;
      ++seen;
      // Help comes before complaints about options, so those are looked up in its text.
      const auto help =
          test::run_program(command.substr(std::string("build/turbogr").size()) + " --help");
      EXPECT_EQ(help.status, 0) << help.output;
      const std::regex option("\\s(--[a-z][a-z-]*)(?=[\\s=]|$)");
      for (std::sregex_iterator at(command.begin(), command.end(), option), end; at != end; ++at) {
        EXPECT_NE(help.output.find((*at)[1].str()), std::string::npos) << (*at)[1].str();
      }
    }
  }
  EXPECT_GE(seen, 3);
}

TEST(Docs, LinkOnlyToWhatIsThere) {
  const std::regex link("\\]\\(([^)#: ]+)(#[^)]*)?\\)");
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    EXPECT_FALSE(text.empty()) << path;
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      EXPECT_TRUE(fs::exists(path.parent_path() / (*at)[1].str())) << path << ": " << at->str();
    }
  }
}

TEST(Docs, NamesOfFilesAreFilesOfTheTree) {
  const std::regex name(
      "`((turbogr|tests|bench|apps|tools|docs|cmake)/[A-Za-z0-9_./-]+\\.[a-z]+)`");
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) {
      EXPECT_TRUE(fs::exists(fs::path(TGR_SOURCE_DIR) / (*at)[1].str())) << path << at->str();
    }
  }
}

}  // namespace
}  // namespace turbogr
