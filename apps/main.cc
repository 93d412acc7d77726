#include <cstddef>
#include <string>
#include <vector>

#include "apps/program.h"
#include "turbogr/core/last_words.h"

int main(int argc, char** argv) {
  turbogr::leave_last_words();
  return turbogr::apps::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
