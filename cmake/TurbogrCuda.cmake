# GPU code: an object library from turbogr/cuda/*.cu for Hopper, and a program that checks and times the
# attention kernels and needs nothing but the NVIDIA driver where it runs.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "TGR_CUDA is ON but nvcc was not found; put it on the PATH or configure with -DTGR_CUDA=OFF")
endif()
# wgmma and setmaxnreg exist in the 90a target only.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# CMake 3.25 does not know which dialects nvcc 13 has.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/turbogr/cuda/*.cu)
add_library(turbogr_cuda OBJECT ${cuda_sources})
target_include_directories(turbogr_cuda PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_options(turbogr_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings
                       -Xcompiler=-Wall,-Wextra>)

add_executable(attention_bench ${CMAKE_SOURCE_DIR}/bench/attention_bench.cu)
target_link_libraries(attention_bench PRIVATE turbogr_cuda)
target_link_options(attention_bench PRIVATE -static-libstdc++ -static-libgcc)

add_executable(fuxi_bench ${CMAKE_SOURCE_DIR}/bench/fuxi_bench.cu)
target_link_libraries(fuxi_bench PRIVATE turbogr_cuda)
target_link_options(fuxi_bench PRIVATE -static-libstdc++ -static-libgcc)
