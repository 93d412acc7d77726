#include <cstddef>
#include <string>
#include <vector>

#include "apps/program.h"
#include "turbogr/core/map_faults.h"

int main(int argc, char** argv) {
  turbogr::explain_map_faults();
  return turbogr::apps::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
