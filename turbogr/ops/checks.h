// Checks that several operators share. Each names the operator, what it found and what it wanted.
#pragma once

#include <cstdint>

#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/view.h"

namespace turbogr::ops {

// Offsets start at 0, never go down and end at `tokens`.
inline void check_offsets(const char* op, Offsets offsets, std::int64_t tokens) {
  TGR_CHECK(offsets.data != nullptr && offsets.shape[0] >= 1, op,
            ": offsets are empty; B sequences need B + 1 of them, and an empty batch needs [0]");
  const std::int64_t batch = offsets.shape[0] - 1;
  TGR_CHECK(offsets(0) == 0, op, ": offsets start at ", offsets(0), "; they must start at 0");
  for (std::int64_t b = 0; b < batch; ++b) {
    TGR_CHECK(offsets(b) <= offsets(b + 1), op, ": offsets go down from ", offsets(b), " to ",
              offsets(b + 1), " at sequence ", b, "; each must be at least the one before");
  }
  TGR_CHECK(offsets(batch) == tokens, op, ": offsets end at ", offsets(batch), " for ", tokens,
            " rows of values; the last offset must be the number of rows");
}

// A GPU's offsets are not read: whoever made the batch checked them on the host.
inline void check_offsets(const Context& ctx, const char* op, Offsets offsets,
                          std::int64_t tokens) {
  if (ctx.device() == Device::kCpu) return check_offsets(op, offsets, tokens);
  TGR_CHECK(offsets.data != nullptr && offsets.shape[0] >= 1, op,
            ": offsets are empty; B sequences need B + 1 of them, and an empty batch needs [0]");
}

template <class T>
void check_rows(const char* op, const char* name, Rows<T> matrix, std::int64_t rows,
                std::int64_t cols) {
  TGR_CHECK(matrix.rows == rows && matrix.cols == cols, op, ": ", name, " is [", matrix.rows, ", ",
            matrix.cols, "]; wanted [", rows, ", ", cols, "]");
  TGR_CHECK(matrix.stride >= matrix.cols, op, ": ", name, " has a row stride of ", matrix.stride,
            " for ", matrix.cols, " columns; rows must not overlap");
  TGR_CHECK(matrix.data != nullptr || rows * cols == 0, op, ": ", name,
            " has no memory; give it a buffer");
}

template <class T>
void check_vector(const char* op, const char* name, View<T, 1> vector, std::int64_t size) {
  TGR_CHECK(vector.shape[0] == size, op, ": ", name, " has ", vector.shape[0], " elements; wanted ",
            size);
  TGR_CHECK(vector.data != nullptr || size == 0, op, ": ", name,
            " has no memory; give it a buffer");
}

}  // namespace turbogr::ops
