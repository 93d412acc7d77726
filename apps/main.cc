#include <cstddef>
#include <string>
#include <vector>

#include "apps/program.h"

int main(int argc, char** argv) {
  return turbogr::apps::run_program(std::vector<std::string>(argv + 1, argv + argc));
}
