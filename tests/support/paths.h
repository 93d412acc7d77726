// Where the tree, the build and the program under test are. Functions, so that one source alone
// depends on the folder it is compiled in: a compiler cache then serves every other one in any
// folder.
#pragma once

#include <string>

namespace turbogr::test {

std::string source_dir();
std::string build_dir();
std::string program();        // turbogr itself
std::string cmake_program();  // the CMake that made the build
std::string mpi_ranks();      // what mpirun starts in the tests of several processes

}  // namespace turbogr::test
