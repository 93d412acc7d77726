// Rows of bf16 with heads side by side, as the kernels are given them: checked, and described to
// the copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace turbogr::cuda {

// `op` and `name` are for the message: pointers must be aligned to 16 bytes, widths and strides
// multiples of 8.
void check_head_rows(const char* op, const char* name, const void* data, std::int64_t stride,
                     int width);

struct HeadRowsShape {
  std::int64_t tokens;
  int heads;
  int width;                 // of a head
  std::int64_t stride;       // from row to row, in elements
  std::int64_t head_stride;  // from head to head
};

// A map for boxes of `box_rows` rows and `box_columns` columns of one head; what lies past the
// width, the heads or the last token reads as zero.
CUtensorMap head_rows_map(const char* op, const char* name, const void* data,
                          const HeadRowsShape& shape, int box_columns, int box_rows);

}  // namespace turbogr::cuda
