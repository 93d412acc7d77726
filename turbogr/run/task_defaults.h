// What the ranking task wants where a key is not named: the recipe of the published models.
#pragma once

#include <string_view>

#include "turbogr/run/config.h"

namespace turbogr::run {

// Sets the keys that are not named; a config of the retrieval task stays as it is.
void choose_for_task(Config& config, const NamedKeys& named);

// As text, for `turbogr config --keys`; empty where the ranking task has the default of all.
std::string ranking_default(std::string_view key);

}  // namespace turbogr::run
