#include "turbogr/ops/dense/matmul_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "turbogr/core/cuda_call.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/workspace.h"

namespace turbogr::ops {
namespace {

constexpr std::int64_t kWorkspaceBytes = 64 << 20;
constexpr int kCandidates = 8;
// A candidate is timed this often, unless all of them together have kept the device busy for
// kEnoughMs: clocks sink under load within some milliseconds, and what is fastest before and after
// differs.
constexpr int kRounds = 24, kFewRounds = 5;
constexpr double kEnoughMs = 80;
// Of those that take up to this times the least, the library's first is taken: noise then rarely
// makes one run choose otherwise than the next.
constexpr float kAsGood = 1.01f;

void check_blas(cublasStatus_t status, const char* what) {
  TGR_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", cublasLtGetStatusString(status), " in ",
            what);
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF32:
      return CUDA_R_32F;
    default:
      TGR_ASSERT(dtype == DType::kBf16);
      return CUDA_R_16BF;
  }
}

cudaDataType_t input_type(const Fp8Input& fp8, DType dtype) {
  if (fp8.inverse == nullptr) return cuda_type(dtype);
  return fp8.format == Fp8Format::kE4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

// The largest power of two, up to 256, that divides an address and a row's bytes.
std::uint32_t alignment(const void* data, std::int64_t stride, DType dtype) {
  const auto bits = reinterpret_cast<std::uintptr_t>(data) |
                    static_cast<std::uintptr_t>(stride * static_cast<std::int64_t>(size_of(dtype)));
  return bits == 0 ? 256u
                   : static_cast<std::uint32_t>(std::min<std::uintptr_t>(bits & (~bits + 1), 256));
}

template <class Opaque, cublasStatus_t (*destroy)(Opaque*)>
struct Destroy {
  void operator()(Opaque* described) const { destroy(described); }
};
using Product = std::unique_ptr<cublasLtMatmulDescOpaque_t,
                                Destroy<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t,
                               Destroy<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                    Destroy<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>>;

struct Descriptions {
  Product product;
  Layout first, second, third, result;

  // cuBLASLt counts by columns: a row-major product is the transposed one with its operands
  // swapped.
  explicit Descriptions(const Matmul& p) : product(make_product(p.in == DType::kF64)) {
    const cublasOperation_t first_op = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second_op = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, first_op);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second_op);
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    if (p.a_fp8.inverse != nullptr) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_fp8.inverse);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_fp8.inverse);
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.short_sums));
    }
    first = make_layout(input_type(p.b_fp8, p.in), p.transpose_b ? p.k : p.n,
                        p.transpose_b ? p.n : p.k, p.b_stride);
    second = make_layout(input_type(p.a_fp8, p.in), p.transpose_a ? p.m : p.k,
                         p.transpose_a ? p.k : p.m, p.a_stride);
    third = make_layout(cuda_type(p.out), p.n, p.m, p.c == nullptr ? p.d_stride : p.c_stride);
    result = make_layout(cuda_type(p.out), p.n, p.m, p.d_stride);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_blas(cublasLtMatmulDescSetAttribute(product.get(), attribute, &value, sizeof value),
               "describing a product");
  }
  static Product make_product(bool f64) {
    cublasLtMatmulDesc_t made = nullptr;
    check_blas(cublasLtMatmulDescCreate(&made, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        f64 ? CUDA_R_64F : CUDA_R_32F),
               "describing a product");
    return Product(made);
  }
  static Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t cols,
                            std::int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(cols), stride),
               "describing a matrix");
    return Layout(made);
  }
};

using Key = std::array<std::int64_t, 16>;

// Sizes in one eighth of a power of two are of one kind.
std::int64_t size_class(std::int64_t size) {
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size))) - 4);
  return ((size + (std::int64_t{1} << shift) - 1) >> shift) << shift;
}

Key key_of(const Matmul& p, bool deterministic) {
  return {deterministic,
          static_cast<std::int64_t>(p.in),
          static_cast<std::int64_t>(p.out),
          deterministic ? p.m : size_class(p.m),
          deterministic ? p.n : size_class(p.n),
          deterministic ? p.k : size_class(p.k),
          p.transpose_a,
          p.transpose_b,
          p.bias != nullptr,
          p.beta != 0,
          input_type(p.a_fp8, p.in),
          input_type(p.b_fp8, p.in),
          p.short_sums,
          alignment(p.a, p.a_stride, p.in) * 512 + alignment(p.b, p.b_stride, p.in),
          alignment(p.d, p.d_stride, p.out),
          p.c == nullptr ? 0 : alignment(p.c, p.c_stride, p.out)};
}

// The largest product of this one's kind that its strides leave room for. Its algorithm depends on
// nothing that came before, as that of the first product of a kind would: a resumed run begins with
// another batch.
Matmul largest_of_kind(Matmul p) {
  const std::int64_t any = std::numeric_limits<std::int64_t>::max();
  p.m = std::min(size_class(p.m), p.transpose_a ? p.a_stride : any);
  p.k = std::min(
      {size_class(p.k), p.transpose_a ? any : p.a_stride, p.transpose_b ? p.b_stride : any});
  p.n = std::min({size_class(p.n), p.transpose_b ? any : p.b_stride, p.d_stride,
                  p.c == nullptr ? any : p.c_stride});
  return p;
}

// A device's handle and choices. They belong to the process, not to a Context: what is fastest is a
// fact of the GPU and the shape, to be timed once, and two contexts that chose for themselves would
// sum in different orders, so that a pipelined step or an evaluation beside it had other bits than
// the serial one. A device has a lock of its own: a rank that times waits for its stream, where a
// collective may wait for what the thread of another device's rank has yet to queue.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::mutex mutex;
  std::map<Key, cublasLtMatmulAlgo_t> chosen;

  Library() { check_blas(cublasLtCreate(&handle), "starting"); }
  static Library& of_current_device() {
    static std::mutex mutex;
    static std::map<int, Library> libraries;
    int device = 0;
    TGR_CUDA_CALL(cudaGetDevice(&device));
    const std::lock_guard lock(mutex);
    return libraries[device];
  }
};

// Into `result` in place of d; a c that is d moves along.
cublasStatus_t run(const Library& library, const Descriptions& d, const Matmul& p, void* result,
                   const cublasLtMatmulAlgo_t& algorithm, void* scratch, cudaStream_t stream) {
  const float one = 1, beta = static_cast<float>(p.beta);
  const double one64 = 1;
  const bool f64 = p.in == DType::kF64;
  const void* third = p.c == nullptr || p.c == p.d ? result : p.c;
  return cublasLtMatmul(
      library.handle, d.product.get(), f64 ? static_cast<const void*>(&one64) : &one, p.b,
      d.first.get(), p.a, d.second.get(), f64 ? static_cast<const void*>(&p.beta) : &beta, third,
      d.third.get(), result, d.result.get(), &algorithm, scratch, kWorkspaceBytes, stream);
}

std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Library& library,
                                                        const Descriptions& d, const Matmul& p) {
  cublasLtMatmulPreference_t made = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&made), "choosing an algorithm");
  const Preference preference(made);
  const std::uint64_t bytes = kWorkspaceBytes;
  cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &bytes, sizeof bytes);
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, std::uint32_t value) {
    cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value);
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b, p.b_stride, p.in));
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a, p.a_stride, p.in));
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        p.c == nullptr ? alignment(p.d, p.d_stride, p.out) : alignment(p.c, p.c_stride, p.out));
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.d, p.d_stride, p.out));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library.handle, d.product.get(), d.first.get(), d.second.get(), d.third.get(), d.result.get(),
      preference.get(), kCandidates, found.data(), &count);
  TGR_CHECK(status == CUBLAS_STATUS_SUCCESS && count > 0,
            "cuBLASLt has no algorithm for a product of [", p.m, ", ", p.k, "] and [", p.k, ", ",
            p.n, "] in ", name_of(p.in), ": ", cublasLtGetStatusString(status));
  found.resize(static_cast<std::size_t>(count));
  return found;
}

std::size_t result_bytes(const Matmul& p) {
  return static_cast<std::size_t>(p.m * p.d_stride) * size_of(p.out);
}

// Whether anything that the product reads lies where it writes.
bool reads_result(const Matmul& p) {
  const auto begin = reinterpret_cast<std::uintptr_t>(p.d);
  const auto meets = [&](const void* data, std::int64_t rows, std::int64_t stride, DType dtype) {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    const auto bytes = static_cast<std::size_t>(rows * stride) * size_of(dtype);
    return data != nullptr && first < begin + result_bytes(p) && begin < first + bytes;
  };
  return meets(p.a, p.transpose_a ? p.k : p.m, p.a_stride, p.in) ||
         meets(p.b, p.transpose_b ? p.n : p.k, p.b_stride, p.in) ||
         (p.beta != 0 && meets(p.c, p.m, p.c_stride, p.out)) || meets(p.bias, 1, p.n, p.out);
}

// Times each candidate. They take turns, so that a neighbour's noise or a change of clocks meets
// all of them, and the medians of the later rounds are compared. A run that must repeat its bits
// takes the library's first guess for the largest product of the kind.
//
// They write to d, which is written again afterwards, or, where the product adds to d, to scratch.
cublasLtMatmulAlgo_t choose(const Library& library, const Descriptions& d, const Matmul& p,
                            void* scratch, Cuda cuda) {
  if (cuda.deterministic) return candidates(library, Descriptions(p), p)[0].algo;
  auto found = candidates(library, d, p);
  if (found.size() == 1) return found[0].algo;
  const auto stream = static_cast<cudaStream_t>(cuda.stream);
  WorkspaceScope room(cuda.workspace);
  void* result = p.d;
  if (reads_result(p)) {
    const std::size_t bytes = result_bytes(p);
    const std::size_t free = cuda.workspace.capacity() - cuda.workspace.used();
    if (workspace_bytes_of<std::byte>(static_cast<std::int64_t>(bytes)) > free) {
      return found[0].algo;  // no room to try: the library's first guess
    }
    result = room.take<std::byte>(static_cast<std::int64_t>(bytes)).data;
    TGR_CUDA_CALL(cudaMemsetAsync(result, 0, bytes, stream));
  }
  const auto first = found[0].algo;
  std::erase_if(found, [&](const cublasLtMatmulHeuristicResult_t& candidate) {
    return run(library, d, p, result, candidate.algo, scratch, stream) != CUBLAS_STATUS_SUCCESS;
  });
  std::vector<std::vector<float>> times(found.size());
  std::vector<Event> marks;  // a candidate's run between each two
  for (std::size_t i = 0; i <= found.size(); ++i) marks.emplace_back(/*timed=*/true);
  double total = 0;
  for (int round = 0; round < kRounds && (round < kFewRounds || total < kEnoughMs); ++round) {
    marks[0].record(cuda.stream);
    for (std::size_t i = 0; i < found.size(); ++i) {
      run(library, d, p, result, found[i].algo, scratch, stream);
      marks[i + 1].record(cuda.stream);
    }
    marks.back().wait();
    for (std::size_t i = 0; i < found.size(); ++i) {
      times[i].push_back(static_cast<float>(marks[i + 1].ms_since(marks[i])));
      total += times[i].back();
    }
  }
  std::vector<float> medians;
  for (std::vector<float>& of_one : times) {
    const auto later = of_one.begin() + static_cast<std::ptrdiff_t>(of_one.size() / 3);
    const auto middle = later + (of_one.end() - later) / 2;
    std::nth_element(later, middle, of_one.end());
    medians.push_back(*middle);
  }
  if (medians.empty()) return first;
  const float most = kAsGood * *std::min_element(medians.begin(), medians.end());
  const auto chosen =
      std::find_if(medians.begin(), medians.end(), [&](float median) { return median <= most; });
  return found[static_cast<std::size_t>(chosen - medians.begin())].algo;
}

}  // namespace

std::size_t matmul_workspace_bytes() { return workspace_bytes_of<std::byte>(kWorkspaceBytes); }

void matmul(Cuda cuda, const Matmul& p) {
  if (p.m == 0 || p.n == 0) return;
  Library& library = Library::of_current_device();
  WorkspaceScope scope(cuda.workspace);
  void* scratch = scope.take<std::byte>(kWorkspaceBytes).data;
  const auto stream = static_cast<cudaStream_t>(cuda.stream);
  const Descriptions descriptions(p);
  cublasLtMatmulAlgo_t algorithm;
  {
    const std::lock_guard lock(library.mutex);
    const Matmul asked = cuda.deterministic ? largest_of_kind(p) : p;
    const Key key = key_of(asked, cuda.deterministic);
    auto known = library.chosen.find(key);
    if (known == library.chosen.end()) {
      known =
          library.chosen.emplace(key, choose(library, descriptions, asked, scratch, cuda)).first;
    }
    algorithm = known->second;
  }
  cublasStatus_t status = run(library, descriptions, p, p.d, algorithm, scratch, stream);
  if (status != CUBLAS_STATUS_SUCCESS) {
    // Chosen for another size of the same class, and not for this one.
    status = run(library, descriptions, p, p.d, candidates(library, descriptions, p)[0].algo,
                 scratch, stream);
  }
  check_blas(status, "a product");
}

}  // namespace turbogr::ops
