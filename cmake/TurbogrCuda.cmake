# GPU code. x_cuda.cu of any layer is compiled for Hopper and, as PTX that the driver finishes, for
# everything from sm_80 on, or for what CMAKE_CUDA_ARCHITECTURES (or the environment's CUDAARCHS) says;
# turbogr/ops/attention/hopper holds the kernels that only Hopper can run.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "TGR_CUDA is ON but nvcc was not found; put it on the PATH or configure with -DTGR_CUDA=OFF")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90a-real)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})  # ccache, where there is one
enable_language(CUDA)
# CMake 3.25 does not know which dialects nvcc 13 has.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)
set(TGR_CUDA_RUNTIME CUDA::cudart_static)
set(TGR_CUDA_LAYER cuda)

# Sets TGR_OTHER_HOPPER to the source that stands for Hopper's kernels where Hopper is not asked for.
string(REPLACE native "${CMAKE_CUDA_ARCHITECTURES_NATIVE}" architectures "${CMAKE_CUDA_ARCHITECTURES}")
if("${architectures}" MATCHES "(^|;)(90|all)")
  set(TGR_CUDA_LIBRARIES turbogr_hopper)  # cuBLASLt and NCCL are opened at run time
  set(TGR_OTHER_HOPPER turbogr/ops/attention/hopper/absent.cc)
else()
  set(TGR_CUDA_LIBRARIES "")
  set(TGR_OTHER_HOPPER "")
  message(STATUS "Without Hopper's attention kernels: CMAKE_CUDA_ARCHITECTURES is ${CMAKE_CUDA_ARCHITECTURES}; "
                 "add 90a-real for them")
endif()

# What differs from build to build though the sources do not: nvcc names objects' local symbols by the number of
# its process.
add_link_options($<$<CONFIG:Release>:LINKER:--discard-all>)

# nvcc makes a source's whole path part of the names of its kernels; the path in the project will do, and two
# builds in two folders then give the same bytes.
include(CheckCompilerFlag)
check_compiler_flag(CUDA "-Xcudafe=--orig_src_file_name=x,--orig_src_path_name=x" TGR_NVCC_TAKES_NAMES)
function(tgr_name_kernels_by_project_path)
  if(NOT TGR_NVCC_TAKES_NAMES)
    return()
  endif()
  foreach(source ${ARGN})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
                 -Xcudafe=--orig_src_file_name=${name},--orig_src_path_name=${name} --frandom-seed=${name})
  endforeach()
endfunction()

# The layer cuda is headers; the part of ops that is compiled for Hopper alone is a library of its own, if asked for.
function(tgr_add_hopper_kernels)
  add_library(turbogr_cuda INTERFACE)
  target_link_libraries(turbogr_cuda INTERFACE turbogr_options turbogr_core)
  if(TGR_OTHER_HOPPER STREQUAL "")
    return()
  endif()

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/turbogr/ops/attention/hopper/*.cu)
  tgr_name_kernels_by_project_path(${sources})
  add_library(turbogr_hopper STATIC ${sources})
  # wgmma and setmaxnreg exist in the 90a target only.
  set_target_properties(turbogr_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_link_libraries(turbogr_hopper PUBLIC turbogr_cuda)

  foreach(bench attention_bench fuxi_bench)
    add_executable(${bench} ${PROJECT_SOURCE_DIR}/bench/${bench}.cu)
    set_target_properties(${bench} PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_link_libraries(${bench} PRIVATE turbogr_hopper)
  endforeach()
endfunction()
