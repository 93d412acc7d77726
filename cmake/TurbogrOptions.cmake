# What every target is compiled with: warnings as errors, the sanitizers asked for, ccache when present.
add_library(turbogr_options INTERFACE)
target_include_directories(turbogr_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_options(turbogr_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
      -Wno-missing-field-initializers -Wnon-virtual-dtor -Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings --expt-relaxed-constexpr --extended-lambda
      -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
target_compile_definitions(turbogr_options INTERFACE TGR_WITH_CUDA=$<BOOL:${TGR_CUDA}>
                           TGR_WITH_ONEDNN=$<BOOL:${TGR_ONEDNN}>)

if(TGR_SANITIZE)
  target_compile_options(turbogr_options INTERFACE -fsanitize=${TGR_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(turbogr_options INTERFACE -fsanitize=${TGR_SANITIZE})
endif()

find_program(TGR_CCACHE ccache)
if(TGR_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TGR_CCACHE})
endif()

# The commit goes into --version and every saved run; a tarball without git says "unknown".
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE TGR_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT TGR_COMMIT)
  set(TGR_COMMIT unknown)
endif()
configure_file(${CMAKE_SOURCE_DIR}/turbogr/core/version.cc.in
               ${CMAKE_BINARY_DIR}/generated/turbogr/core/version.cc @ONLY)
