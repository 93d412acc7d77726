#include "apps/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/core/log.h"
#include "turbogr/core/nearest_name.h"
#include "turbogr/core/version.h"

namespace turbogr::apps {
namespace {

// Wrong use of the command line; 1 is for everything that goes wrong later.
constexpr int kUsageStatus = 2;

// The parser turns a whole number of more than 64 bits into the largest there is, and a negative
// one into a huge one where none is allowed: refuse both before it does.
std::string check_whole_number(const std::string& text, bool negative_too) {
  std::int64_t whole = 0;
  std::uint64_t natural = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = negative_too ? std::from_chars(text.data(), end, whole)
                                                     : std::from_chars(text.data(), end, natural);
  if (result.ec == std::errc() && result.ptr == end) return "";
  return fmt::format("'{}' is not a whole number{} of at most 64 bits", text,
                     negative_too ? "" : " from 0 on");
}

// Known before a long command starts, not when its figures are to be written.
std::string check_output(const std::string& path) {
  namespace fs = std::filesystem;
  TGR_CHECK(!fs::is_directory(path), "'", path, "' is a folder; name the file to write");
  const fs::path above = fs::path(path).parent_path();
  const std::string folder = above.empty() ? "." : above.string();
  TGR_CHECK(fs::is_directory(folder), "cannot write '", path, "': there is no folder '", folder,
            "'; make it, or name another file");
  const bool writable = ::access(fs::exists(path) ? path.c_str() : folder.c_str(), W_OK) == 0;
  TGR_CHECK(writable, "cannot write '", path, "': ", std::strerror(errno),
            "; name another file, or change its permissions");
  return "";
}

// What holds for options of every command.
void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const bool file = option->check_lname("out") && app.get_name() == "export";
    const bool page = option->check_lname("html");
    if (option->check_lname("json") || option->check_lname("trace") || page || file) {
      option->check(check_output);
    }
    const std::string type = option->get_type_name();
    const bool negative_too = type.starts_with("INT") && !option->check_lname("threads");
    if (!type.starts_with("INT") && !type.starts_with("UINT")) continue;
    option->check(
        [negative_too](const std::string& text) { return check_whole_number(text, negative_too); });
  }
  for (CLI::App* command : app.get_subcommands({})) check_values(*command);
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string no_command(const CLI::App& app, const std::string& name) {
  return fmt::format("there is no command '{}'{}", name, did_you_mean(name, command_names(app)));
}

// What words that nobody expected were meant to be; empty when they are neither option nor command.
std::string meant(const CLI::App& app, const std::vector<std::string>& unexpected) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  if (command->get_allow_extras()) return "";  // its overrides of a config
  for (const std::string& word : unexpected) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& each : option->get_lnames()) known.push_back("--" + each);
    }
    return fmt::format("there is no option '{}'{}", name, did_you_mean(name, known));
  }
  if (unexpected.empty() || command_names(*command).empty()) return "";
  return no_command(*command, unexpected.front());
}

// The help first: an error above a screen of it would scroll away. CLI11 calls a mistyped command a
// missing one, and so a mistyped option that is required; `turbogr evla` should hear of 'evla'.
std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const std::string slip = meant(*app, app->remaining(/*recurse=*/true));
  return fmt::format("{}\nturbogr: {}\n", app->help(),
                     escaped(slip.empty() ? error.what() : slip, "\\\n"));
}

// The parser sees CONFIG.toml and overrides as extras, so it would not mention them.
class ConfigUsage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + " [CONFIG.toml] [--KEY=VALUE ...] [OPTIONS]\n";
  }
};

// Errors name ids and paths, which may hold what a terminal would obey.
int fail(std::string_view what, int status = 1) {
  fmt::print(stderr, "turbogr: {}\n", escaped(what, "\\\n"));
  return status;
}

int fail_output(std::string_view why) {
  return fail(fmt::format("cannot write to standard output: {}", why));
}

// Figures that never reached a full disk or a closed pipe must not look like success.
int finish_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  // An earlier write may have failed: then the reason is gone.
  return fail_output(errno != 0 ? std::strerror(errno) : "it was closed, or its disk is full");
}

}  // namespace

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::check(Check check) {
  option_->check(std::move(check));
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::allow_extra_args(bool allowed) {
  option_->allow_extra_args(allowed);
  return this;
}

bool Option::given() const { return option_->count() > 0; }

Command::Command(const std::string& name, const std::string& description)
    : own_(std::make_unique<CLI::App>(description, name)), app_(own_.get()) {
  app_->failure_message(usage_message);
}

Command::Command(CLI::App* app) : app_(app) {}

Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  commands_.push_back(
      std::unique_ptr<Command>(new Command(app_->add_subcommand(name, description))));
  return commands_.back().get();
}

void Command::require_subcommand() { app_->require_subcommand(1); }

void Command::take_common_options() {
  app_->set_version_flag("--version", fmt::format("turbogr {} ({})", version(), commit()));
  app_->add_option("--log-level", log_level_, "debug, info, warning, error or off")
      ->check(is_one_of({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app_->parse_complete_callback([this] { log::set_up(log_level_); });
}

template <class T>
Option* Command::add_option(const std::string& name, T& value, const std::string& help) {
  CLI::Option* option = app_->add_option(name, value, help);
  using Text = std::filesystem::path;
  if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Text> ||
                std::is_same_v<T, std::vector<std::string>> ||
                std::is_same_v<T, std::vector<Text>>) {
    // A variable of the shell that is not set must not mean "all".
    option->check([](const std::string& text) {
      return std::string(text.empty() ? "is empty; give a value, or leave the option out" : "");
    });
  }
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

#define TGR_OPTION_OF(...) \
  template Option* Command::add_option(const std::string&, __VA_ARGS__&, const std::string&)
TGR_OPTION_OF(std::string);
TGR_OPTION_OF(std::filesystem::path);
TGR_OPTION_OF(int);
TGR_OPTION_OF(std::int64_t);
TGR_OPTION_OF(std::uint64_t);
TGR_OPTION_OF(double);
TGR_OPTION_OF(std::optional<std::int64_t>);
TGR_OPTION_OF(std::vector<std::string>);
TGR_OPTION_OF(std::vector<std::filesystem::path>);
TGR_OPTION_OF(std::vector<int>);
TGR_OPTION_OF(std::vector<std::int64_t>);
#undef TGR_OPTION_OF

Option* Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  options_.push_back(std::make_unique<Option>(app_->add_flag(name, value, help)));
  return options_.back().get();
}

void Command::callback(std::function<void()> action) { app_->callback(std::move(action)); }

void Command::before_callback(std::function<void()> action) {
  app_->parse_complete_callback(std::move(action));
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::take_config() {
  app_->allow_extras();
  app_->formatter(std::make_shared<ConfigUsage>());
  app_->footer(
      "Any key of the file can be overridden: --train.steps=100. `turbogr config --keys` lists "
      "them.");
}

void Command::take_everything() {
  app_->set_help_flag();
  app_->prefix_command();
}

std::vector<std::string> Command::remaining() const { return app_->remaining(); }

std::string Command::name() const { return app_->get_name(); }

std::string Command::description() const { return app_->get_description(); }

std::string Command::help() const {
  std::string path = app_->get_name();
  for (const CLI::App* above = app_->get_parent(); above != nullptr; above = above->get_parent()) {
    path = fmt::format("{} {}", above->get_name(), path);
  }
  // App::help would answer for the command that is being run.
  return app_->get_formatter()->make_help(app_, path, CLI::AppFormatMode::Normal);
}

std::string Command::no_such_command(const std::string& name) const {
  return no_command(*app_, name);
}

std::vector<Command::OptionText> Command::options() const {
  std::vector<OptionText> texts;
  for (const CLI::Option* option : static_cast<const CLI::App*>(app_)->get_options()) {
    OptionText& text = texts.emplace_back();
    text.help = option->get_description();
    for (const std::string& name : option->get_snames()) text.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) text.names.push_back("--" + name);
    if (text.names.empty()) text.names.push_back(option->get_name(/*positional=*/true));
  }
  return texts;
}

std::vector<const Command*> Command::subcommands() const {
  std::vector<const Command*> commands;
  for (const auto& command : commands_) commands.push_back(command.get());
  return commands;
}

int Command::run(const std::vector<std::string>& words) {
  check_values(*app_);
  try {
    // CLI11 takes the last word first.
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    return finish_output();
  } catch (const CLI::ParseError& error) {
    const int status = app_->exit(error) == 0 ? 0 : kUsageStatus;
    return status == 0 ? finish_output() : status;
  } catch (const UsageError& error) {
    return fail(error.what(), kUsageStatus);
  } catch (const turbogr::Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("out of memory; give it less to do at once, or more memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(fmt::format("'{}': {}", error.path1().string(), error.code().message()));
  } catch (const std::system_error& error) {  // a thread that could not be started, most of all
    if (std::ferror(stdout) != 0) return fail_output(error.code().message());
    return fail(fmt::format("the system refuses: {}; see whether a limit is reached (`ulimit -a`)",
                            error.code().message()));
  } catch (const std::exception& error) {
    return fail(fmt::format("unexpected: {}", error.what()));
  }
}

Check is_positive() {
  return [](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && *end == 0 && value > 0 && std::isfinite(value)) return "";
    return "'" + text + "' is not more than 0, or no finite number";
  };
}

Check is_not_negative() {
  return [](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && *end == 0 && value >= 0 && std::isfinite(value)) return "";
    return "'" + text + "' is less than 0, or no finite number";
  };
}

Check is_from_to(std::int64_t low, std::int64_t high) {
  return [low, high](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const std::from_chars_result result = std::from_chars(text.data(), end, value);
    if (result.ec == std::errc() && result.ptr == end && value >= low && value <= high) return "";
    return fmt::format("'{}' is no whole number from {} to {}", text, low, high);
  };
}

Check is_one_of(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    return fmt::format("'{}' is none of {}", text, fmt::join(words, ", "));
  };
}

Check can_be_read(std::function<void(const std::string& text)> read) {
  return [read = std::move(read)](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
}

}  // namespace turbogr::apps
