// What the codes of a store stand for: user 3 or colour 2 may be another one in another store,
// whose rows a model would then read without a word.
#pragma once

#include <nlohmann/json.hpp>

#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/data/store.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

// Checksums of the ids and values that codes stand for, by the names features read them by: "user",
// "item.colour"; and "signals", their names in order. Kept in a checkpoint's state.
nlohmann::json vocabularies_of(const data::Store& store);

// Throws where what `config` reads means something else than in training: codes of features, bits
// of signals. (A checkpoint of an older program does not say of codes: then with a remark in the
// log.)
void check_vocabularies(const checkpoint::Checkpoint& saved, const Config& config,
                        const data::Store& store);

}  // namespace turbogr::run
