# NCCL's header, when asked for or there; the library itself is opened at run time, so that the program
# starts without it. Sets TGR_OTHER_NCCL to the one of two sources that does not apply.
set(TGR_OTHER_NCCL turbogr/dist/nccl_cuda.cc)
if(TGR_CUDA AND NOT TGR_NCCL STREQUAL "OFF")
  find_path(TGR_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(TGR_NCCL_INCLUDE)
    set(TGR_OTHER_NCCL turbogr/dist/nccl_absent.cc)
  elseif(NOT TGR_NCCL STREQUAL "AUTO")
    message(FATAL_ERROR "TGR_NCCL is ON but nccl.h was not found; put it beside CUDA's headers, set "
                        "TGR_NCCL_INCLUDE, or configure with -DTGR_NCCL=OFF")
  endif()
endif()
