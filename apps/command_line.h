// Commands and their options, on CLI11. command_line.cc alone sees that library: in a header it
// costs every command ten seconds of compiling.
//
//   Command* eval = program.add_subcommand("eval", "Rank held-out items");
//   eval->add_option("--split", options->split, "validation, test or all")->capture_default_str();
//   eval->callback([options] { run_eval(*options); });
#pragma once

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "turbogr/core/check.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace turbogr::apps {

// Wrong use of the command line that shows only once the words are read: what it prints and the
// exit status are those of the parser's own errors, less the help.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Parts>
void check_usage(bool right, const Parts&... parts) {
  if (right) return;
  std::ostringstream text;
  (text << ... << parts);
  throw UsageError(text.str());
}

// What is wrong with a value; nothing when it is right.
using Check = std::function<std::string(const std::string& text)>;

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  Option* capture_default_str();  // the help shows the value it has now
  Option* check(Check check);
  Option* delimiter(char between);         // several values in one word
  Option* allow_extra_args(bool allowed);  // false: the next word is not one more value
  bool given() const;

 private:
  CLI::Option* option_;
};

class Command {
 public:
  Command(const std::string& name, const std::string& description);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand();
  void take_common_options();  // --version and --log-level, of a whole program

  // T: std::string, int, std::int64_t, std::uint64_t, double, std::filesystem::path, an optional
  // std::int64_t, or a vector of strings, paths, int or std::int64_t.
  template <class T>
  Option* add_option(const std::string& name, T& value, const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);

  void callback(std::function<void()> action);
  void before_callback(std::function<void()> action);  // once the words are read
  void footer(const std::string& text);
  // CONFIG.toml and --a.b=c: words the parser hands over as they are, by remaining().
  void take_config();
  // Words of a program this command hands over to, --help included.
  void take_everything();
  std::vector<std::string> remaining() const;

  // Everything below the program, for shell completion and the manual.
  struct OptionText {
    std::vector<std::string> names;  // "-h", "--help"; or "INPUT"
    std::string help;
  };
  std::string name() const;
  std::string description() const;
  std::string help() const;
  std::vector<OptionText> options() const;
  std::vector<const Command*> subcommands() const;
  std::string no_such_command(const std::string& name) const;  // an error; says which was meant

  // The whole of main: reads the words, runs the command, says what went wrong. The exit status.
  int run(const std::vector<std::string>& words);

 private:
  explicit Command(CLI::App* app);

  std::string log_level_ = "info";
  std::unique_ptr<CLI::App> own_;  // of the program itself; its commands live in it
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<Option>> options_;
};

Check is_positive();
Check is_not_negative();
Check is_from_to(std::int64_t low, std::int64_t high);  // a whole number
Check is_one_of(std::vector<std::string> words);
// That `read` takes the text without an Error.
Check can_be_read(std::function<void(const std::string& text)> read);

}  // namespace turbogr::apps
