# x_simd.cc is compiled once per instruction set, each time into a namespace of its own, and the best
# set the machine has is chosen at run time (turbogr/core/simd_level.h). Such a file includes no standard
# containers and no shared inline code: the linker could keep the copy that older machines cannot run.
set(TGR_SIMD_LEVELS portable)
set(TGR_SIMD_FLAGS_portable "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND TGR_SIMD_LEVELS avx2 avx512 avx512bf16)
  set(TGR_SIMD_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(TGR_SIMD_FLAGS_avx512 ${TGR_SIMD_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
      -mprefer-vector-width=512)
  set(TGR_SIMD_FLAGS_avx512bf16 ${TGR_SIMD_FLAGS_avx512} -mavx512bf16)
endif()

function(tgr_add_simd_sources target)
  foreach(level ${TGR_SIMD_LEVELS})
    set(objects ${target}_${level})
    add_library(${objects} OBJECT ${ARGN})
    target_link_libraries(${objects} PRIVATE turbogr_options)
    # -ffp-contract stays on: a fused multiply-add is what these kernels are made of.
    # GCC 12 takes the intrinsics' own don't-care operands for uninitialised variables.
    target_compile_options(${objects} PRIVATE -O3 -fno-math-errno -fno-trapping-math -Wno-psabi
                           -Wno-uninitialized -Wno-maybe-uninitialized ${TGR_SIMD_FLAGS_${level}})
    target_compile_definitions(${objects} PRIVATE TGR_SIMD=${level} TGR_SIMD_${level}=1)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
