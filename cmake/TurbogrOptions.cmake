# What every target is compiled with: warnings, the sanitizers asked for, ccache when present, and the
# standard headers read once.
add_library(turbogr_options INTERFACE)
target_include_directories(turbogr_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(turbogr_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
      -Wno-missing-field-initializers -Wnon-virtual-dtor $<$<BOOL:${TGR_WERROR}>:-Werror>
      -fPIC>  # programs too: they share the precompiled headers with libraries
    $<$<COMPILE_LANGUAGE:CUDA>:$<$<BOOL:${TGR_WERROR}>:-Werror=all-warnings> --expt-relaxed-constexpr
      --extended-lambda -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
target_compile_definitions(turbogr_options INTERFACE TGR_WITH_CUDA=$<BOOL:${TGR_CUDA}>
                           TGR_WITH_ONEDNN=$<BOOL:${TGR_ONEDNN}>)
# -O2: what is worth more is in the x_simd.cc files, which ask for it themselves (TurbogrSimd.cmake).
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

if(TGR_SANITIZE)
  target_compile_options(turbogr_options INTERFACE -fsanitize=${TGR_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(turbogr_options INTERFACE -fsanitize=${TGR_SANITIZE})
endif()

find_program(TGR_CCACHE ccache)
if(TGR_CCACHE)
  # What ccache wants before it works with precompiled headers.
  target_compile_options(turbogr_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${TGR_CCACHE})
endif()

# The standard library's headers and fmt, parsed once instead of once a source: half a second each.
# (nlohmann's JSON and CLI11 are not here: what few sources use would slow all others down.)
add_library(turbogr_headers OBJECT ${PROJECT_SOURCE_DIR}/cmake/headers.cc)
target_link_libraries(turbogr_headers PRIVATE turbogr_options ${TGR_TEXT} Threads::Threads)
target_precompile_headers(turbogr_headers PRIVATE ${PROJECT_SOURCE_DIR}/cmake/headers.h)

# The commit goes into --version and every saved run; a tarball without git says "unknown".
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE TGR_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT TGR_COMMIT)
  set(TGR_COMMIT unknown)
endif()
configure_file(${PROJECT_SOURCE_DIR}/turbogr/core/version.cc.in
               ${PROJECT_BINARY_DIR}/generated/turbogr/core/version.cc @ONLY)
