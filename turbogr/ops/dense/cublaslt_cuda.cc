// cuBLASLt's functions under their own names: each finds the library's when first called. Whoever
// calls them is compiled as if it were linked.
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "turbogr/core/check.h"
#include "turbogr/core/loaded_library.h"

namespace turbogr::ops {
namespace {

template <class Function>
Function find_in_cublaslt(const char* function) {
  static const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  static const LoadedLibrary library = open_library("cuBLASLt", name.c_str(), "TGR_CUBLASLT");
  TGR_CHECK(library.handle != nullptr, library.problem,
            "; it comes with CUDA, or `pip install nvidia-cublas`");
  void* found = dlsym(library.handle, function);
  TGR_CHECK(found != nullptr, "cuBLASLt is too old: it has no ", function, "; CUDA ",
            CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR, " was built with");
  return reinterpret_cast<Function>(found);
}

}  // namespace
}  // namespace turbogr::ops

#define TGR_FORWARD(Result, function, parameters, arguments)                                   \
  Result function parameters {                                                                 \
    static const auto call = turbogr::ops::find_in_cublaslt<decltype(&::function)>(#function); \
    return call arguments;                                                                     \
  }

extern "C" {
TGR_FORWARD(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
TGR_FORWARD(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulDescCreate,
            (cublasLtMatmulDesc_t * desc, cublasComputeType_t compute, cudaDataType_t scale),
            (desc, compute, scale))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc), (desc))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulDescSetAttribute,
            (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
             size_t bytes),
            (desc, attribute, value, bytes))
TGR_FORWARD(cublasStatus_t, cublasLtMatrixLayoutCreate,
            (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t cols,
             int64_t stride),
            (layout, type, rows, cols, stride))
TGR_FORWARD(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
TGR_FORWARD(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,
            (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
             const void* value, size_t bytes),
            (layout, attribute, value, bytes))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulPreferenceCreate,
            (cublasLtMatmulPreference_t * preference), (preference))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulPreferenceDestroy,
            (cublasLtMatmulPreference_t preference), (preference))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
            (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
             const void* value, size_t bytes),
            (preference, attribute, value, bytes))
TGR_FORWARD(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
            (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
             cublasLtMatmulPreference_t preference, int wanted,
             cublasLtMatmulHeuristicResult_t results[], int* found),
            (handle, desc, a, b, c, d, preference, wanted, results, found))
TGR_FORWARD(cublasStatus_t, cublasLtMatmul,
            (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
             cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
             const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
             void* workspace, size_t bytes, cudaStream_t stream),
            (handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
             algorithm, workspace, bytes, stream))
}
