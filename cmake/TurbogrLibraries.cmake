# The libraries turbogr is built on, all of them Debian packages (tools/packages.txt).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(ZLIB REQUIRED)
find_package(zstd REQUIRED)

if(TGR_ONEDNN)
  # Not by oneDNN's own package file: Debian's asks for OpenCL's headers, which nothing here needs.
  find_path(TGR_DNNL_INCLUDE dnnl.hpp REQUIRED)
  find_library(TGR_DNNL_LIBRARY dnnl REQUIRED)
  add_library(turbogr_dnnl SHARED IMPORTED)
  set_target_properties(turbogr_dnnl PROPERTIES IMPORTED_LOCATION ${TGR_DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${TGR_DNNL_INCLUDE})
  # oneDNN's threads are OpenMP's; operators tell each of their own threads to use one.
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(TGR_PRODUCTS turbogr_dnnl $<LINK_ONLY:OpenMP::OpenMP_CXX>)
  set(TGR_OTHER_PRODUCTS turbogr/ops/dense/linear_plain.cc)
else()
  set(TGR_OTHER_PRODUCTS turbogr/ops/dense/linear_dnnl.cc)
endif()

if(TGR_PORTABLE)
  # Debian has spdlog, fmt and toml++ as shared libraries only: their headers can do without. One source
  # each sees spdlog and toml++; fmt is everywhere, so it is compiled by itself.
  add_library(turbogr_text STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cc)
  target_compile_definitions(turbogr_text PUBLIC SPDLOG_FMT_EXTERNAL=1)
  set(TGR_TEXT turbogr_text)
  set(TGR_TOML turbogr_toml)
  add_library(turbogr_toml INTERFACE)
  target_compile_definitions(turbogr_toml INTERFACE TOML_HEADER_ONLY=1)
  set(TGR_ZSTD zstd::libzstd_static)
  set(ZLIB_USE_STATIC_LIBS ON)
  # A wheel may count on the system's, and those of Debian 12 want a newer glibc than manylinux_2_35 has.
  if(NOT TGR_PYTHON)
    add_link_options(-static-libstdc++ -static-libgcc)
  endif()
else()
  set(TGR_TEXT fmt::fmt spdlog::spdlog)
  set(TGR_TOML tomlplusplus::tomlplusplus)
  set(TGR_ZSTD zstd::libzstd_shared)
endif()
