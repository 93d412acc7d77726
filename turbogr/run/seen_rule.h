// Which rule about seen items (eval/seen_items.h) a run, or a checkpoint of one, goes by.
#pragma once

#include <string>
#include <string_view>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/data/store.h"
#include "turbogr/eval/seen_items.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

// Puts drop or keep in the place of eval.seen = "auto": what a resumed run has stored, or what
// suits the targets of the test split. Returns why, for people; empty where it was said before.
std::string resolve_seen(Config& config, const data::Store& store);

// A resumed run goes on by the rule it was evaluated by, so that its figures can be compared.
// Returns a remark about a run that has none stored; else empty.
std::string check_same_seen(const Config& was, const Config& is);

// The rule for a checkpoint: the one given, or its run's when that is empty. Runs of older programs
// have none stored: they took seen items off the lists of `recommend`, so it is drop, with a
// warning.
eval::SeenItems seen_for(const checkpoint::Checkpoint& checkpoint, const Config& config,
                         std::string_view given);

}  // namespace turbogr::run
