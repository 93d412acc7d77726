// The subcommands of `turbogr`. Each registers its options; Command::run runs the one chosen and is
// the only place that catches errors.
#pragma once

#include "apps/command_line.h"

namespace turbogr::apps {

void add_bench(Command& program);
void add_completion(Command& program);
void add_config(Command& program);

Command* add_data(Command& program);  // the parent of those below
void add_data_prepare(Command& data);
void add_data_merge(Command& data);
void add_data_stats(Command& data);
void add_data_synth(Command& data);
void add_data_verify(Command& data);

Command* add_demo(Command& program);
void add_doctor(Command& program);
void add_eval(Command& program);
Command* add_export(Command& program);
void add_help(Command& program);
Command* add_plan(Command& program);
Command* add_rank(Command& program);
void add_recommend(Command& program);
Command* add_report(Command& program);
void add_train(Command& program);
Command* add_tune(Command& program);

}  // namespace turbogr::apps
