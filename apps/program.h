// The program `turbogr` as a function, so that one command (`demo`) can run others.
#pragma once

#include <string>
#include <vector>

namespace turbogr::apps {

// The exit status; `words` are those after the program's name.
int run_program(const std::vector<std::string>& words);

}  // namespace turbogr::apps
