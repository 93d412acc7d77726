# The standard headers once, and sources in batches. A class spread over several sources instantiates itself in
# each of them, so those stay alone.
function(tgr_compile_fast target)
  target_precompile_headers(${target} REUSE_FROM turbogr_headers)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TGR_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(TGR_UNITY)  # in a batch, anonymous namespaces look as if they stood in a header
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "/(run_(plan|state|figures)|training_run|stats|hstu_attention_cpu)\\.cc$")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# tgr_add_layer(name LAYERS below... LIBRARIES external...): the static library turbogr_<name> from every
# source below turbogr/<name>. Linking only the named layers makes the direction of dependencies real. The
# program and the tests link every layer, through the global property TGR_LAYERS. WITHOUT leaves sources
# out; x_cuda.cc and *.cu are for CUDA builds.
function(tgr_add_layer name)
  cmake_parse_arguments(ARG "" "" "LAYERS;LIBRARIES;WITHOUT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/turbogr/${name}/*.cc)
  set(simd_sources ${sources})
  list(FILTER simd_sources INCLUDE REGEX "_simd\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_simd\\.cc$")
  foreach(source ${ARG_WITHOUT})
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/${source})
  endforeach()
  if(NOT TGR_CUDA)
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cc$")
  else()
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/turbogr/${name}/*.cu)
    list(FILTER cuda_sources EXCLUDE REGEX "/hopper/")  # turbogr_hopper has them
    tgr_name_kernels_by_project_path(${cuda_sources})
    list(APPEND sources ${cuda_sources})
  endif()
  if(name STREQUAL core)
    list(APPEND sources ${PROJECT_BINARY_DIR}/generated/turbogr/core/version.cc)
  endif()
  set_property(GLOBAL APPEND PROPERTY TGR_LAYERS turbogr_${name})
  add_library(turbogr_${name} STATIC ${sources})
  target_link_libraries(turbogr_${name} PUBLIC turbogr_options ${ARG_LIBRARIES})
  tgr_compile_fast(turbogr_${name})
  foreach(layer ${ARG_LAYERS})
    target_link_libraries(turbogr_${name} PUBLIC turbogr_${layer})
  endforeach()
  if(simd_sources)
    tgr_add_simd_sources(turbogr_${name} ${simd_sources})
  endif()
endfunction()
