// `turbogr bench tables`: many tables against one of the same bytes.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "bench/tables_bench.h"

namespace turbogr::apps {

void add_bench_tables(Command& bench) {
  struct Options {
    bench::TablesProblem problem;
    std::string device = "cpu";
  };
  auto options = std::make_shared<Options>();
  bench::TablesProblem& problem = options->problem;
  Command* command = bench.add_subcommand(
      "tables", "A step's rows of many tables, found, fetched and updated, against one table's");
  command->add_option("--tables", problem.tables, "of equal size")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--rows", problem.rows, "of all tables together")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--ids", problem.ids, "of a step, in all tables together")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--width", problem.width, "of a row")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--seconds", problem.seconds, "to time")->capture_default_str();
  command->add_option("--threads", problem.threads, "of the host; 0: one a core")
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu or cuda")
      ->check(is_one_of({"cpu", "cuda"}))
      ->capture_default_str();
  command->callback([options] {
    bench::TablesProblem& given = options->problem;
    given.device = options->device == "cuda" ? Device::kCuda : Device::kCpu;
    const bench::TablesFigures f = bench::time_tables(given);
    fmt::print("{} rows of {} in f32 ({:.1f} MiB with AdaGrad's state), {} ids a step\n",
               given.rows, given.width, f.bytes / (1 << 20), given.ids);
    fmt::print("{:>3} tables {:9.3f} ms  ({:.3f} to {:.3f})\n", given.tables, f.many.ms,
               f.many.p10_ms, f.many.p90_ms);
    fmt::print("{:>3} table  {:9.3f} ms  ({:.3f} to {:.3f})   many over one {:.3f}\n", 1, f.one.ms,
               f.one.p10_ms, f.one.p90_ms, f.many.ms / f.one.ms);
  });
}

}  // namespace turbogr::apps
