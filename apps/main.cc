#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/core/version.h"

namespace {

// CLI11 calls a mistyped command a missing one; `turbogr evla` should hear of 'evla'.
std::string explain(const CLI::App* app, const CLI::Error& error) {
  std::string what = error.what();
  const std::vector<std::string> left = app->remaining(/*recurse=*/true);
  if (what == "A subcommand is required" && !left.empty()) {
    what = fmt::format("there is no command '{}'; the list is below", left.front());
  }
  return fmt::format("turbogr: {}\n\n{}", what, app->help());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("turbogr: trains generative recommenders on whole user histories", "turbogr");
  app.set_version_flag("--version",
                       fmt::format("turbogr {} ({})", turbogr::version(), turbogr::commit()));
  app.require_subcommand(1);
  app.failure_message(explain);
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const turbogr::Error& error) {
    fmt::print(stderr, "turbogr: {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "turbogr: unexpected: {}\n", error.what());
    return 1;
  }
  return 0;
}
