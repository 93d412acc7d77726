// The words of a command that takes a config: CONFIG.toml and --a.b=c.
#pragma once

#include "apps/command_line.h"
#include "turbogr/run/config.h"

namespace turbogr::apps {

// What the command's parser has left over. A word that is no key, but nearly an option of the
// command's own, is taken for a slip of the finger.
run::ConfigArguments config_arguments(const Command& command);

}  // namespace turbogr::apps
