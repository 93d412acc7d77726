// The subcommands of `turbogr bench`.
#pragma once

#include "apps/command_line.h"

namespace turbogr::apps {

void add_bench_attention(Command& bench);
void add_bench_balance(Command& bench);
void add_bench_data(Command& bench);
void add_bench_exchange(Command& bench);
void add_bench_gpu_ops(Command& bench);
void add_bench_layer(Command& bench);
void add_bench_loader(Command& bench);
void add_bench_machine(Command& bench);
void add_bench_negatives(Command& bench);
void add_bench_ops(Command& bench);
void add_bench_rank_request(Command& bench);
void add_bench_rank_step(Command& bench);
void add_bench_tables(Command& bench);
void add_bench_step(Command& bench);

}  // namespace turbogr::apps
