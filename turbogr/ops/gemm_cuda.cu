#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "turbogr/cuda/columns.cuh"
#include "turbogr/ops/gemm_cuda.h"

namespace turbogr::ops {
namespace {

void check_blas(cublasStatus_t status, const char* call) {
  TGR_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", cublasLtGetStatusString(status), " in ",
            call);
}
#define TGR_BLAS_CALL(call) check_blas(call, #call)

template <class T>
constexpr cudaDataType_t data_type() {
  return std::is_same_v<T, double>  ? CUDA_R_64F
         : std::is_same_v<T, float> ? CUDA_R_32F
                                    : CUDA_R_16BF;
}

// The largest power of two, up to 256, that an address is a multiple of.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

struct Layout {
  cublasLtMatrixLayout_t value = nullptr;
  Layout(cudaDataType_t type, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
    TGR_BLAS_CALL(cublasLtMatrixLayoutCreate(&value, type, static_cast<std::uint64_t>(rows),
                                             static_cast<std::uint64_t>(cols), stride));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(value); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

// A prepared product. cuBLASLt's matrices are column-major, so it makes c^T = b^T a^T.
template <class T>
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  Layout first, second, result;
  std::optional<cublasLtMatmulAlgo_t> algorithm;

  Plan(cublasLtHandle_t handle, const Gemm<T>& p)
      : first(data_type<T>(), p.b.cols, p.b.rows, p.b.stride),
        second(data_type<T>(), p.a.cols, p.a.rows, p.a.stride),
        result(data_type<Accum<T>>(), p.c.cols, p.c.rows, p.c.stride) {
    constexpr bool kDouble = std::is_same_v<T, double>;
    TGR_BLAS_CALL(cublasLtMatmulDescCreate(&operation,
                                           kDouble ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                           kDouble ? CUDA_R_64F : CUDA_R_32F));
    const auto transpose = [&](cublasLtMatmulDescAttributes_t side, bool transposed) {
      const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      TGR_BLAS_CALL(cublasLtMatmulDescSetAttribute(operation, side, &value, sizeof value));
    };
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed);

    cublasLtMatmulPreference_t preference;
    TGR_BLAS_CALL(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      TGR_BLAS_CALL(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kGemmScratchBytes));
    // Parts of a sum meet in scratch and in order, not in the output as they come.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c.data));
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation, first.value, second.value, result.value,
                                       result.value, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && count > 0) algorithm = found.algo;
  }
  ~Plan() { cublasLtMatmulDescDestroy(operation); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

using Key = std::array<std::int64_t, 12>;

template <class T>
Key key_of(const Gemm<T>& p) {
  return {p.a.rows,
          p.a.cols,
          p.a.stride,
          p.b.rows,
          p.b.cols,
          p.b.stride,
          p.c.stride,
          p.a_transposed + 2 * p.b_transposed,
          p.beta != 0,
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.c.data)};
}

// What a host thread has prepared so far: a handle and plans are no part of a result.
template <class T>
struct Plans {
  cublasLtHandle_t handle = nullptr;
  std::map<Key, std::unique_ptr<Plan<T>>> plans;

  Plans() { TGR_BLAS_CALL(cublasLtCreate(&handle)); }
  const Plan<T>& of(const Gemm<T>& product) {
    std::unique_ptr<Plan<T>>& plan = plans[key_of(product)];
    if (!plan) plan = std::make_unique<Plan<T>>(handle, product);
    return *plan;
  }
};

// For shapes that cuBLASLt does not take: strides that are no multiple of its vectors.
template <class T>
__global__ void plain_gemm_kernel(Gemm<T> p, std::int64_t depth) {
  using A = Accum<T>;
  constexpr int kTile = 16;
  __shared__ A a[kTile][kTile + 1], b[kTile][kTile + 1];
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile + threadIdx.y;
  const std::int64_t col = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  A sum = 0;
  for (std::int64_t k = 0; k < depth; k += kTile) {
    const std::int64_t ka = k + threadIdx.x, kb = k + threadIdx.y;
    a[threadIdx.y][threadIdx.x] = row < p.c.rows && ka < depth
                                      ? convert<A>(p.a_transposed ? p.a(ka, row) : p.a(row, ka))
                                      : A(0);
    b[threadIdx.y][threadIdx.x] = col < p.c.cols && kb < depth
                                      ? convert<A>(p.b_transposed ? p.b(col, kb) : p.b(kb, col))
                                      : A(0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
    __syncthreads();
  }
  if (row >= p.c.rows || col >= p.c.cols) return;
  A& out = p.c(row, col);
  out = p.beta == 0 ? sum : out + sum;
}

}  // namespace

template <class T>
void gemm(Cuda cuda, const Gemm<T>& p) {
  if (p.c.rows == 0 || p.c.cols == 0) return;
  cudaStream_t stream = cuda::stream_of(cuda.stream);
  const std::int64_t depth = p.a_transposed ? p.a.rows : p.a.cols;
  static thread_local Plans<T> plans;
  const Plan<T>& plan = plans.of(p);
  if (!plan.algorithm) {
    const dim3 blocks(static_cast<unsigned>(cuda::divide_up(p.c.cols, 16)),
                      static_cast<unsigned>(cuda::divide_up(p.c.rows, 16)));
    plain_gemm_kernel<T><<<blocks, dim3(16, 16), 0, stream>>>(p, depth);
    cuda::check_launch("gemm");
    return;
  }
  WorkspaceScope scope(cuda.workspace);
  void* scratch = scope.take<unsigned char>(kGemmScratchBytes).data;
  const Accum<T> alpha = 1;
  const auto beta = static_cast<Accum<T>>(p.beta);
  TGR_BLAS_CALL(cublasLtMatmul(plans.handle, plan.operation, &alpha, p.b.data, plan.first.value,
                               p.a.data, plan.second.value, &beta, p.c.data, plan.result.value,
                               p.c.data, plan.result.value, &*plan.algorithm, scratch,
                               kGemmScratchBytes, stream));
}

#define TGR_INSTANTIATE(T) template void gemm<T>(Cuda, const Gemm<T>&);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
