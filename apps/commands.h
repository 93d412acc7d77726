// The subcommands of `turbogr`. Each registers its options on the parser; main runs the one chosen
// and is the only place that catches errors.
#pragma once

namespace CLI {
class App;
}

namespace turbogr::apps {

void add_bench(CLI::App& app);
void add_doctor(CLI::App& app);
void add_config(CLI::App& app);
void add_report(CLI::App& app);

// Under `bench`.
void add_bench_ops(CLI::App& bench);

}  // namespace turbogr::apps
