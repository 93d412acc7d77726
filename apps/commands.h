// The subcommands of `turbogr`. Each registers its options on the parser; main runs the one chosen
// and is the only place that catches errors.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace turbogr::apps {

void add_bench(CLI::App& app);  // the parent of those below
void add_bench_balance(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_data(CLI::App& bench);
void add_bench_exchange(CLI::App& bench);
void add_bench_layer(CLI::App& bench);
void add_bench_loader(CLI::App& bench);
void add_bench_negatives(CLI::App& bench);
void add_bench_ops(CLI::App& bench);
void add_bench_step(CLI::App& bench);

// A check for the parser: nothing, or what is wrong with an amount.
std::string positive(const std::string& text);

void add_config(CLI::App& app);

void add_data(CLI::App& app);  // the parent of those below
void add_data_prepare(CLI::App& data);
void add_data_stats(CLI::App& data);
void add_data_synth(CLI::App& data);
void add_data_verify(CLI::App& data);

void add_doctor(CLI::App& app);
void add_eval(CLI::App& app);
void add_export(CLI::App& app);
void add_recommend(CLI::App& app);
void add_report(CLI::App& app);
void add_train(CLI::App& app);

}  // namespace turbogr::apps
