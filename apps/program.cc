#include "apps/program.h"

#include <memory>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/dist/communicator.h"

namespace turbogr::apps {
namespace {

// What several processes at once would print, or write to one file, as often as there are of them.
void refuse_ranks(Command& command) {
  const std::string name = command.name();
  command.before_callback([name] {
    const int ranks = dist::launched_ranks();
    TGR_CHECK(ranks == 1, "`turbogr ", name, "` is one process, and mpirun or srun has started ",
              ranks,
              " of it; start it without them (`train`, `eval` and `recommend` share their work)");
  });
}

}  // namespace

int run_program(const std::vector<std::string>& words) {
  Command program("turbogr", "turbogr: trains generative recommenders on whole user histories");
  program.take_common_options();
  program.require_subcommand();
  refuse_ranks(*add_demo(program));
  refuse_ranks(*add_data(program));
  add_train(program);
  refuse_ranks(*add_tune(program));
  add_eval(program);
  add_recommend(program);
  refuse_ranks(*add_rank(program));
  refuse_ranks(*add_export(program));
  refuse_ranks(*add_plan(program));
  add_config(program);
  refuse_ranks(*add_report(program));
  add_bench(program);
  add_doctor(program);
  add_completion(program);
  add_help(program);
  return program.run(words);
}

}  // namespace turbogr::apps
