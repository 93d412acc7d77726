# libturbogr_parquet.so, when a pyarrow is named (`make parquet`): Parquet by the Arrow C++ library that pyarrow brings.
# The program never links it; it opens it, from beside itself, when Parquet is asked for.
set(TGR_PYARROW "" CACHE PATH "The folder of the pyarrow whose Arrow library reads Parquet; empty: none")
if(TGR_PYARROW)
  file(STRINGS ${TGR_PYARROW}/include/arrow/util/config.h version REGEX "define ARROW_(VERSION_STRING|SO_VERSION) ")
  string(REGEX MATCH "VERSION_STRING \"([^\"]+)\"" unused "${version}")
  set(arrow_version ${CMAKE_MATCH_1})
  string(REGEX MATCH "SO_VERSION \"([^\"]+)\"" unused "${version}")
  set(so_version ${CMAKE_MATCH_1})
  add_library(turbogr_parquet MODULE turbogr/data/arrow/parquet_calls.cc turbogr/data/arrow/parquet_scan.cc)
  target_include_directories(turbogr_parquet PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(turbogr_parquet SYSTEM PRIVATE ${TGR_PYARROW}/include)
  foreach(library arrow arrow_compute arrow_dataset parquet)
    if(EXISTS ${TGR_PYARROW}/lib${library}.so.${so_version})
      target_link_libraries(turbogr_parquet PRIVATE ${TGR_PYARROW}/lib${library}.so.${so_version})
    endif()
  endforeach()
  set_target_properties(turbogr_parquet PROPERTIES CXX_VISIBILITY_PRESET hidden BUILD_RPATH ${TGR_PYARROW}
                        INSTALL_RPATH ${TGR_PYARROW} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  # What the program says when that pyarrow has become another.
  file(WRITE ${PROJECT_BINARY_DIR}/libturbogr_parquet.so.built-for "${arrow_version}\n${TGR_PYARROW}\n")
endif()
