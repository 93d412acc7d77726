// `turbogr report RUN`: the run's figures as one page.
#include "turbogr/run/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/run/timeline.h"

namespace turbogr::apps {

Command* add_report(Command& app) {
  struct Options {
    std::string run;
    std::string out;
  };
  auto options = std::make_shared<Options>();
  Command* command = app.add_subcommand("report", "Write a run's curves and config as one page");
  command->add_option("RUN", options->run, "Run folder")->required();
  command->add_option("--out", options->out, "Where to write it (default: RUN/report.html)");
  command->callback([options] {
    const data::InterruptGuard guard;
    fmt::print("{}\n", run::write_report(options->run, options->out));
    const std::string trace = options->run + "/trace.json";
    if (std::filesystem::exists(trace)) {
      fmt::print("{}", run::timeline_text(run::read_timeline(trace)));
    }
  });
  return command;
}

}  // namespace turbogr::apps
