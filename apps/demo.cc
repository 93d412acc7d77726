// `turbogr demo`: a small KuaiRand-like world from nothing to recommendations, each step a command
// that could be typed.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "apps/demo_config.h"
#include "apps/program.h"
#include "turbogr/core/check.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::apps {
namespace {

namespace fs = std::filesystem;

struct DemoOptions {
  std::string folder = "turbogr-demo";
  bool overwrite = false;
};

// Only what a demo made is ever removed, and only when asked to: other runs in its folder stay.
void make_folder(const fs::path& folder, bool overwrite) {
  const fs::path mark = folder / ".made-by-turbogr-demo";
  if (fs::exists(mark)) {
    TGR_CHECK(overwrite, "'", folder.string(),
              "' holds an earlier demo; name another folder, or give --overwrite to lose its "
              "results and make it anew");
    for (const char* made : {"store", "run", "ranking", "demo.toml"}) fs::remove_all(folder / made);
  } else {
    TGR_CHECK(!fs::exists(folder) || fs::is_empty(folder), "'", folder.string(),
              "' is there and not from an earlier demo; remove it, or name another folder");
  }
  fs::create_directories(folder);
  TGR_CHECK(std::ofstream(mark).good(), "cannot write into '", folder.string(),
            "'; name a folder that can be written");
}

void say(std::string_view title) {
  fmt::print("\n== {}\n", title);
  std::fflush(stdout);
}

void run(const std::vector<std::string>& words) {
  fmt::print("$ turbogr {}\n", fmt::join(words, " "));
  std::fflush(stdout);
  const int status = run_program(words);
  TGR_CHECK(status == 0, "the demo ends here: `turbogr ", fmt::format("{}", fmt::join(words, " ")),
            "` went wrong, its words are above");
}

void run_demo(const DemoOptions& options) {
  const data::InterruptGuard guard;
  const std::string& folder = options.folder;
  make_folder(folder, options.overwrite);
  const std::string store = folder + "/store", trained = folder + "/run",
                    ranked = folder + "/ranking", config = folder + "/demo.toml";
  std::ofstream(config) << kDemoConfig;

  say("1. A world to learn from: 2,000 users, 3,000 videos");
  run({"data", "synth", "--like", "kuairand27k", "--users", "2000", "--items", "3000",
       "--mean-length", "150", "--max-length", "1000", "--seed", "1", "--out", store});
  run({"data", "stats", store});

  say("2. Training HSTU with time and position bias");
  run({"train", config, "--data.store=" + store, "--run.dir=" + trained});

  TGR_CHECK(!data::interrupted(), "the demo ends here: ", data::interruption(),
            ". Go on with `turbogr train ", config, " --data.store=", store, " --run.dir=", trained,
            " --run.resume=true`, or start it again with --overwrite");

  say("3. Quality on held-out events, against popularity and an untrained model");
  run({"eval", "--checkpoint", trained, "--split", "test", "--popularity", "--untrained", "--at",
       "10"});

  say("4. Recommendations for three users");
  for (const char* user : {"1", "2", "3"}) {
    run({"recommend", "--checkpoint", trained, "--user", user, "--k", "5"});
  }

  say("5. The report");
  run({"report", trained});

  say("6. Ranking: what three users would do with videos they are shown");
  run({"train", "--task=ranking", "--data.store=" + store, "--run.dir=" + ranked,
       "--data.max_length=32", "--train.epochs=1", "--train.patience=0", "--checkpoint.keep_best=0",
       "--eval.metric=is_click.auc"});
  TGR_CHECK(!data::interrupted(), "the demo ends here: ", data::interruption(),
            "; all but the ranking is there");
  for (const char* user : {"1", "2", "3"}) {
    run({"rank", "--checkpoint", ranked, "--user", user, "--items", "0,1,2,3,4"});
  }

  say("Where everything is");
  fmt::print(
      "data         {0}\nconfig       {1}\n"
      "run          {2} (config, metrics.jsonl, checkpoints, TensorBoard events)\n"
      "report       {2}/report.html  - open it in a browser\n"
      "ranking      {3}\n"
      "try next     turbogr recommend --checkpoint {2} --user 7 --k 10\n",
      store, config, trained, ranked);
}

}  // namespace

Command* add_demo(Command& program) {
  Command* command = program.add_subcommand(
      "demo", "Make a small world, train on it, evaluate, recommend, report, rank");
  auto options = std::make_shared<DemoOptions>();
  command->add_option("FOLDER", options->folder, "Where to put everything; one minute on two cores")
      ->capture_default_str();
  command->add_flag("--overwrite", options->overwrite,
                    "Lose what an earlier demo left there (other runs in the folder stay)");
  command->callback([options] { run_demo(*options); });
  return command;
}

}  // namespace turbogr::apps
