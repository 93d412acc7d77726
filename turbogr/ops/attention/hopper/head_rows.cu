#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/head_rows.cuh"

namespace turbogr::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &result),
          "cudaGetDriverEntryPointByVersion");
    TGR_CHECK(result == cudaDriverEntryPointSuccess && function != nullptr,
              "the NVIDIA driver has no cuTensorMapEncodeTiled; driver 525 or newer is needed");
    return reinterpret_cast<EncodeTiled>(function);
  }();
  return found;
}

}  // namespace

void check_head_rows(const char* op, const char* name, const void* data, std::int64_t stride,
                     int width) {
  TGR_CHECK(data != nullptr, op, ": ", name, " is null");
  TGR_CHECK(reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0 && width % 8 == 0,
            op, ": ", name,
            " needs 16-byte alignment and width and stride in multiples of 8, has width ", width,
            " and stride ", stride);
}

CUtensorMap head_rows_map(const char* op, const char* name, const void* data,
                          const HeadRowsShape& shape, int box_columns, int box_rows) {
  check_head_rows(op, name, data, shape.stride, shape.width);
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(shape.width),
                               static_cast<cuuint64_t>(shape.heads),
                               static_cast<cuuint64_t>(shape.tokens)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(shape.head_stride) * 2,
                                 static_cast<cuuint64_t>(shape.stride) * 2};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(box_columns), 1,
                             static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status =
      encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes,
                     strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TGR_CHECK(status == CUDA_SUCCESS, op, ": no tensor map for ", name, ", driver error ",
            static_cast<int>(status));
  return map;
}

}  // namespace turbogr::cuda
