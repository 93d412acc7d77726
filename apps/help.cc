// `turbogr help [COMMAND ...]`.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"

namespace turbogr::apps {

void add_help(Command& program) {
  auto names = std::make_shared<std::vector<std::string>>();
  Command* command = program.add_subcommand("help", "How a command is used");
  command->add_option("COMMAND", *names, "Its name, such as `eval` or `data prepare`");
  command->callback([&program, names] {
    const Command* meant = &program;
    for (const std::string& name : *names) {
      const Command* inner = nullptr;
      for (const Command* each : meant->subcommands()) {
        if (each->name() == name) inner = each;
      }
      const std::string none = meant->no_such_command(name);
      TGR_CHECK(inner != nullptr, none, none.ends_with('?') ? " " : "; ",
                "`turbogr help` lists them");
      meant = inner;
    }
    fmt::print("{}", meant->help());
  });
}

}  // namespace turbogr::apps
