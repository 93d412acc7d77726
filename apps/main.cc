#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/map_faults.h"
#include "turbogr/core/version.h"
#include "turbogr/dist/communicator.h"

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
    if (option->check_lname("json") || option->check_lname("trace")) option->check(check_output);
    const std::string type = option->get_type_name();
    const bool negative_too = type.starts_with("INT") && !option->check_lname("threads");
    if (!type.starts_with("INT") && !type.starts_with("UINT")) continue;
    option->check(
        [negative_too](const std::string& text) { return check_whole_number(text, negative_too); });
  }
  for (CLI::App* command : app.get_subcommands({})) check_values(*command);
}

// The help first: an error above a screen of it would scroll away. CLI11 calls a mistyped command a
// missing one; `turbogr evla` should hear of 'evla'.
std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  std::string what = error.what();
  const std::vector<std::string> left = app->remaining(/*recurse=*/true);
  if (what == "A subcommand is required" && !left.empty()) {
    what = fmt::format("there is no command '{}'; the list is above", left.front());
  }
  return fmt::format("{}\nturbogr: {}\n", app->help(), what);
}

// What several processes at once would print, or write to one file, as often as there are of them.
void refuse_ranks(CLI::App& app) {
  for (const char* name : {"data", "recommend", "export", "report"}) {
    app.get_subcommand(name)->parse_complete_callback([name] {
      const int ranks = turbogr::dist::launched_ranks();
      TGR_CHECK(ranks == 1, "`turbogr ", name, "` is one process, and mpirun or srun has started ",
                ranks, " of it; start it without them (`train` and `eval` share their work)");
    });
  }
}

int fail(std::string_view what) {
  fmt::print(stderr, "turbogr: {}\n", what);
  return 1;
}

// Figures that never reached a full disk or a closed pipe must not look like success.
int finish_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  return fail("cannot write to standard output: it was closed, or its disk is full");
}

}  // namespace

int main(int argc, char** argv) {
  turbogr::explain_map_faults();
  CLI::App app("turbogr: trains generative recommenders on whole user histories", "turbogr");
  app.set_version_flag("--version",
                       fmt::format("turbogr {} ({})", turbogr::version(), turbogr::commit()));
  app.require_subcommand(1);
  app.failure_message(usage_message);
  std::string level = "info";
  app.add_option("--log-level", level, "debug, info, warning, error or off")->capture_default_str();
  app.parse_complete_callback([&] { turbogr::log::set_up(level); });

  turbogr::apps::add_data(app);
  turbogr::apps::add_train(app);
  turbogr::apps::add_eval(app);
  turbogr::apps::add_recommend(app);
  turbogr::apps::add_export(app);
  turbogr::apps::add_config(app);
  turbogr::apps::add_report(app);
  turbogr::apps::add_bench(app);
  turbogr::apps::add_doctor(app);
  check_values(app);
  refuse_ranks(app);
  try {
    app.parse(argc, argv);
    return finish_output();
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error) == 0 ? 0 : kUsageStatus;
    return status == 0 ? finish_output() : status;
  } catch (const turbogr::Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("out of memory; give it less to do at once, or more memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(fmt::format("'{}': {}", error.path1().string(), error.code().message()));
  } catch (const std::system_error& error) {  // a thread that could not be started, most of all
    return fail(fmt::format("the system refuses: {}; see whether a limit is reached (`ulimit -a`)",
                            error.code().message()));
  } catch (const std::exception& error) {
    return fail(fmt::format("unexpected: {}", error.what()));
  }
}
