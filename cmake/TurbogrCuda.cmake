# GPU code. x_cuda.cu of any layer is compiled for Hopper and, as PTX that the driver finishes, for
# everything from sm_80 on; turbogr/cuda holds the kernels that only Hopper can run.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "TGR_CUDA is ON but nvcc was not found; put it on the PATH or configure with -DTGR_CUDA=OFF")
endif()
set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90a-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(TGR_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TGR_CCACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know which dialects nvcc 13 has.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)
set(TGR_CUDA_RUNTIME CUDA::cudart_static)
set(TGR_CUDA_LIBRARIES CUDA::cublasLt)
set(TGR_CUDA_LAYER cuda)

function(tgr_add_hopper_kernels)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/turbogr/cuda/*.cu)
  add_library(turbogr_cuda STATIC ${sources})
  # wgmma and setmaxnreg exist in the 90a target only.
  set_target_properties(turbogr_cuda PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_link_libraries(turbogr_cuda PUBLIC turbogr_options turbogr_core)
  set_property(GLOBAL APPEND PROPERTY TGR_LAYERS turbogr_cuda)

  add_executable(attention_bench ${CMAKE_SOURCE_DIR}/bench/attention_bench.cu)
  set_target_properties(attention_bench PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_link_libraries(attention_bench PRIVATE turbogr_cuda)
endfunction()
