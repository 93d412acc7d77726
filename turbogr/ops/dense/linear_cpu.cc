#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "turbogr/ops/dense/linear_kernels.h"
#include "turbogr/ops/dense/linear_packed.h"
#include "turbogr/ops/dense/linear_simd.h"
#include "turbogr/ops/dense/linear_small.h"

namespace turbogr::ops::kernels {
namespace {

// M rows, K inputs, N outputs. C is the format the products read: T, or f32 where bf16 is widened.

constexpr std::int64_t kTileRows = PackedProduct::kTileRows;
constexpr std::int64_t kTileCols = PackedProduct::kTileCols;
constexpr std::int64_t kGroup = 4;  // column tiles that share one fetch of their rows of x
constexpr std::int64_t kMaxRows = GradientProduct::kMaxRows;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <class T>
using ConstMatrix = typename LinearLoops<T>::ConstMatrix;
template <class T>
using Matrix = typename LinearLoops<T>::Matrix;

template <class T>
auto part(Rows<T> matrix, std::int64_t row, std::int64_t col) {
  using Plain = std::remove_const_t<T>;
  using Part = std::conditional_t<std::is_const_v<T>, ConstMatrix<Plain>, Matrix<Plain>>;
  if (matrix.data == nullptr) return Part{nullptr, 0};
  return Part{matrix.row(row) + col, matrix.stride};
}

template <class T, class C>
void gather(const LinearLoops<T>& loops, std::int64_t rows, ConstMatrix<T> x, std::int64_t cols,
            C* out) {
  if constexpr (std::is_same_v<T, C>) {
    loops.gather(rows, cols, x, out);
  } else {
    loops.gather_f32(rows, cols, x, out);
  }
}

template <class T, class C>
void gradient(const LinearLoops<T>& loops, std::int64_t rows, std::int64_t cols, ConstMatrix<T> dy,
              ConstMatrix<T> z, C* dz, float* db) {
  if constexpr (std::is_same_v<T, C>) {
    loops.gradient(rows, cols, dy, z, dz, db);
  } else {
    loops.gradient_f32(rows, cols, dy, z, dz, db);
  }
}

template <class C>
void clear_rows(C* data, std::int64_t begin, std::int64_t end, std::int64_t cols) {
  if (begin >= end) return;
  std::memset(static_cast<void*>(data + begin * cols), 0,
              static_cast<std::size_t>((end - begin) * cols) * sizeof(C));
}

// Each worker's own memory: a dense block of rows, a tile of the product, oneDNN's scratch.
template <class C>
struct WorkerScratch {
  View<C, 2> rows;
  View<float, 2> tile;
  View<std::byte, 2> product;

  WorkerScratch(WorkspaceScope& scope, std::int64_t threads, std::int64_t row_cols,
                std::size_t product_bytes)
      : rows(scope.take<C, 2>({threads, kTileRows * row_cols})),
        tile(scope.take<float, 2>({threads, kTileRows * kTileCols})),
        product(scope.take<std::byte, 2>({threads, static_cast<std::int64_t>(product_bytes)})) {}

  static std::size_t bytes(std::int64_t threads, std::int64_t row_cols, std::size_t product_bytes) {
    return workspace_bytes_of<C>(threads * kTileRows * row_cols) +
           workspace_bytes_of<float>(threads * kTileRows * kTileCols) +
           workspace_bytes_of<std::byte>(threads * static_cast<std::int64_t>(product_bytes));
  }
};

template <class T, class C>
void forward_tiles(Cpu cpu, Rows<const T> x, const typename PackedWeight<T>::State& weight,
                   const LinearOptions<T>& options, Rows<T> y, Rows<T> z) {
  const PackedProduct& product = *weight.forward_product;
  const LinearLoops<T>& loops = linear_table(cpu.simd).of<T>();
  const bool silu = options.activation == Activation::kSilu;
  const bool dense = std::is_same_v<T, C> && x.stride == x.cols;
  WorkspaceScope scope(cpu.workspace);
  const WorkerScratch<C> scratch(scope, cpu.pool.size(), x.cols, product.scratch_bytes());
  const std::int64_t groups = ceil_div(product.tiles(), kGroup);
  parallel_for(cpu.pool, ceil_div(x.rows, kTileRows) * groups, [&](std::int64_t item, int worker) {
    const std::int64_t row = item / groups * kTileRows;
    const std::int64_t rows = std::min(kTileRows, x.rows - row);
    const std::int64_t padded = PackedProduct::padded_rows(rows);
    const void* a = x.row(row);
    if (!dense || padded != rows) {
      C* block = &scratch.rows(worker, 0);
      gather<T, C>(loops, rows, part(x, row, 0), x.cols, block);
      clear_rows(block, rows, padded, x.cols);
      a = block;
    }
    float* c = &scratch.tile(worker, 0);
    std::byte* product_scratch = scratch.product.data + worker * scratch.product.shape[1];
    const std::int64_t first = item % groups * kGroup;
    for (std::int64_t tile = first; tile < std::min(first + kGroup, product.tiles()); ++tile) {
      product.run(tile, padded, a, weight.forward.data(), c, product_scratch);
      const std::int64_t col = tile * kTileCols;
      const float* bias = options.bias.data == nullptr
                              ? nullptr
                              : reinterpret_cast<const float*>(options.bias.data) + col;
      loops.epilogue(rows, product.tile_cols(tile), c, bias, silu, part(options.residual, row, col),
                     part(y, row, col), part(z, row, col));
    }
  });
}

// Rows are taken kMaxRows at a time, so scratch stays bounded: first dz and dx, then what they add
// to dw.
template <class T, class C>
class BackwardTiles {
 public:
  using State = typename PackedWeight<T>::State;

  BackwardTiles(Cpu cpu, Rows<const T> x, const State& weight, Rows<const T> dy,
                const LinearBackwardOptions<T>& options, const LinearGradients<T>& gradients)
      : cpu_(cpu),
        x_(x),
        weight_(weight),
        dy_(dy),
        z_(options.activation == Activation::kNone ? Rows<const T>() : options.z),
        gradients_(gradients),
        loops_(linear_table(cpu.simd).of<T>()),
        scope_(cpu.workspace),
        scratch_(scope_, cpu.pool.size(), 0, product_bytes(weight)),
        x_block_(scope_.take<C, 2>({block_rows(x.rows), x.cols})),
        dz_block_(scope_.take<C, 2>({block_rows(x.rows), dy.cols})),
        db_parts_(scope_.take<float, 2>({block_rows(x.rows) / kTileRows, dy.cols})),
        x_dense_(std::is_same_v<T, C> && x.stride == x.cols),
        dy_dense_(std::is_same_v<T, C> && z_.data == nullptr && dy.stride == dy.cols) {}

  static std::size_t bytes(const State& weight, std::int64_t rows, int threads) {
    const std::int64_t block = block_rows(rows);
    return WorkerScratch<C>::bytes(threads, 0, product_bytes(weight)) +
           workspace_bytes_of<C>(block * weight.inputs) +
           workspace_bytes_of<C>(block * weight.outputs) +
           workspace_bytes_of<float>(block / kTileRows * weight.outputs);
  }

  void run() {
    for (std::int64_t begin = 0; begin < x_.rows; begin += kMaxRows) {
      const std::int64_t rows = std::min(kMaxRows, x_.rows - begin);
      const std::int64_t chunks = ceil_div(rows, kTileRows);
      parallel_for(cpu_.pool, chunks, [&](std::int64_t chunk, int worker) {
        const std::int64_t row = chunk * kTileRows;
        rows_of_chunk(begin, row, std::min(kTileRows, rows - row), worker);
      });
      if (gradients_.db.data != nullptr) add_db(chunks);
      if (gradients_.dw.data != nullptr) add_dw(begin, rows);
    }
  }

 private:
  static std::size_t product_bytes(const State& weight) {
    return std::max(weight.transposed_product->scratch_bytes(),
                    weight.gradient_product->scratch_bytes());
  }
  static std::int64_t block_rows(std::int64_t rows) {
    return std::min(kMaxRows, ceil_div(rows, kTileRows) * kTileRows);
  }

  // The block from which products read rows `row` on: the caller's memory where it is dense and a
  // chunk is whole, the copy otherwise.
  const C* source(const Rows<const T>& matrix, bool dense, const View<C, 2>& block,
                  std::int64_t begin, std::int64_t row, bool whole) const {
    if constexpr (std::is_same_v<T, C>) {
      if (dense && whole) return matrix.row(begin + row);
    }
    return &block(row, 0);
  }

  void rows_of_chunk(std::int64_t begin, std::int64_t row, std::int64_t rows, int worker) {
    const bool whole = rows == kTileRows;
    if (gradients_.dw.data != nullptr && !(x_dense_ && whole)) {
      C* block = &x_block_(row, 0);
      gather<T, C>(loops_, rows, part(x_, begin + row, 0), x_.cols, block);
      clear_rows(block, rows, kTileRows, x_.cols);
    }
    const bool copy = !(dy_dense_ && whole);
    float* db = nullptr;
    if (gradients_.db.data != nullptr) {
      db = &db_parts_(row / kTileRows, 0);
      std::memset(db, 0, static_cast<std::size_t>(dy_.cols) * sizeof(float));
    }
    C* dz = copy ? &dz_block_(row, 0) : nullptr;
    if (copy || db != nullptr) {
      gradient<T, C>(loops_, rows, dy_.cols, part(dy_, begin + row, 0), part(z_, begin + row, 0),
                     dz, db);
    }
    if (copy) clear_rows(dz, rows, kTileRows, dy_.cols);
    if (gradients_.dx.data == nullptr) return;

    const PackedProduct& product = *weight_.transposed_product;
    const C* a = source(dy_, dy_dense_, dz_block_, begin, row, whole);
    float* c = &scratch_.tile(worker, 0);
    std::byte* product_scratch = scratch_.product.data + worker * scratch_.product.shape[1];
    for (std::int64_t tile = 0; tile < product.tiles(); ++tile) {
      product.run(tile, PackedProduct::padded_rows(rows), a, weight_.transposed.data(), c,
                  product_scratch);
      loops_.epilogue(rows, product.tile_cols(tile), c, nullptr, false, {nullptr, 0},
                      part(gradients_.dx, begin + row, tile * kTileCols), {nullptr, 0});
    }
  }

  void add_db(std::int64_t chunks) {
    parallel_ranges(cpu_.pool, dy_.cols, 256, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        for (std::int64_t c = first; c < last; ++c) gradients_.db(c) += db_parts_(chunk, c);
      }
    });
  }

  void add_dw(std::int64_t begin, std::int64_t rows) {
    const GradientProduct& product = *weight_.gradient_product;
    parallel_for(cpu_.pool, product.tiles(), [&](std::int64_t tile, int worker) {
      std::byte* product_scratch = scratch_.product.data + worker * scratch_.product.shape[1];
      const std::int64_t whole_rows = rows / kTileRows * kTileRows;
      const auto run = [&](std::int64_t row, std::int64_t count, bool whole) {
        product.run(tile, count, source(x_, x_dense_, x_block_, begin, row, whole),
                    source(dy_, dy_dense_, dz_block_, begin, row, whole),
                    reinterpret_cast<float*>(gradients_.dw.data), product_scratch);
      };
      std::int64_t row = 0;
      for (std::int64_t count = kMaxRows; count >= kTileRows; count /= 2) {
        for (; row + count <= whole_rows; row += count) run(row, count, true);
      }
      if (row < rows) run(row, kTileRows, false);
    });
  }

  Cpu cpu_;
  Rows<const T> x_;
  const State& weight_;
  Rows<const T> dy_;
  Rows<const T> z_;
  const LinearGradients<T>& gradients_;
  const LinearLoops<T>& loops_;
  WorkspaceScope scope_;
  WorkerScratch<C> scratch_;
  View<C, 2> x_block_;
  View<C, 2> dz_block_;
  View<float, 2> db_parts_;
  bool x_dense_;
  bool dy_dense_;
};

static_assert(GradientProduct::kMinRows == kTileRows, "chunks of rows serve both products");

// Calls body with a value of the format the products read.
template <class T, class Body>
auto with_compute(const typename PackedWeight<T>::State& weight, Body&& body) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (weight.compute == DType::kBf16) return body(bf16());
  }
  return body(float());
}

}  // namespace

template <class T>
void pack_weight(Cpu cpu, typename PackedWeight<T>::State& state, View<const T, 2> w) {
  if constexpr (std::is_same_v<T, float>) {
    if (state.small) return pack_small_weight(state, w);
  }
  const auto pack = [&](const PackedProduct& product, Tensor& packed) {
    WorkspaceScope scope(cpu.workspace);
    const auto bytes = static_cast<std::int64_t>(product.scratch_bytes());
    const auto scratch = scope.take<std::byte, 2>({cpu.pool.size(), bytes});
    parallel_for(cpu.pool, product.tiles(), [&](std::int64_t tile, int worker) {
      product.pack(tile, w.data, packed.data(), scratch.data + worker * bytes);
    });
  };
  pack(*state.forward_product, state.forward);
  pack(*state.transposed_product, state.transposed);
}

template <>
void pack_weight<double>(Cpu, PackedWeight<double>::State& state, View<const double, 2> w) {
  std::memcpy(state.forward.data(), w.data, state.forward.bytes());
}

template <class T>
void linear(Cpu cpu, Rows<const T> x, const typename PackedWeight<T>::State& weight,
            const LinearOptions<T>& options, Rows<T> y, Rows<T> z) {
  if constexpr (std::is_same_v<T, float>) {
    if (weight.small) return small_linear(cpu, x, weight, options, y, z);
  }
  with_compute<T>(weight, [&](auto compute) {
    forward_tiles<T, decltype(compute)>(cpu, x, weight, options, y, z);
  });
}

// The specification.
template <>
void linear<double>(Cpu cpu, Rows<const double> x, const PackedWeight<double>::State& weight,
                    const LinearOptions<double>& options, Rows<double> y, Rows<double> z) {
  const View<const double, 2> w = weight.forward.view<double, 2>();
  parallel_ranges(cpu.pool, x.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < weight.outputs; ++c) {
        double value = options.bias.data == nullptr ? 0.0 : options.bias(c);
        for (std::int64_t k = 0; k < weight.inputs; ++k) value += x(r, k) * w(k, c);
        if (z.data != nullptr) z(r, c) = value;
        if (options.activation == Activation::kSilu) value /= 1 + std::exp(-value);
        if (options.residual.data != nullptr) value += options.residual(r, c);
        y(r, c) = value;
      }
    }
  });
}

template <class T>
std::size_t linear_workspace_bytes(const typename PackedWeight<T>::State& weight, int threads) {
  if (weight.small) return 0;
  return with_compute<T>(weight, [&](auto compute) {
    return WorkerScratch<decltype(compute)>::bytes(threads, weight.inputs,
                                                   weight.forward_product->scratch_bytes());
  });
}

template <>
std::size_t linear_workspace_bytes<double>(const PackedWeight<double>::State&, int) {
  return 0;
}

template <class T>
void linear_backward(Cpu cpu, Rows<const T> x, const typename PackedWeight<T>::State& weight,
                     Rows<const T> dy, const LinearBackwardOptions<T>& options,
                     const LinearGradients<T>& gradients) {
  if constexpr (std::is_same_v<T, float>) {
    if (weight.small) return small_linear_backward(cpu, x, weight, dy, options, gradients);
  }
  with_compute<T>(weight, [&](auto compute) {
    BackwardTiles<T, decltype(compute)>(cpu, x, weight, dy, options, gradients).run();
  });
}

// The specification; rows of dw and of dx are made apart, each summed in order.
template <>
void linear_backward<double>(Cpu cpu, Rows<const double> x,
                             const PackedWeight<double>::State& weight, Rows<const double> dy,
                             const LinearBackwardOptions<double>& options,
                             const LinearGradients<double>& gradients) {
  const View<const double, 2> w = weight.forward.view<double, 2>();
  const auto dz = [&](std::int64_t r, std::int64_t c) {
    if (options.activation == Activation::kNone) return dy(r, c);
    const double z = options.z(r, c);
    const double s = 1 / (1 + std::exp(-z));
    return dy(r, c) * s * (1 + z * (1 - s));
  };
  if (gradients.dx.data != nullptr) {
    parallel_for(cpu.pool, x.rows, [&](std::int64_t r, int) {
      for (std::int64_t k = 0; k < weight.inputs; ++k) gradients.dx(r, k) = 0;
      for (std::int64_t c = 0; c < weight.outputs; ++c) {
        const double value = dz(r, c);
        for (std::int64_t k = 0; k < weight.inputs; ++k) gradients.dx(r, k) += value * w(k, c);
      }
    });
  }
  parallel_for(cpu.pool, weight.outputs, [&](std::int64_t c, int) {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const double value = dz(r, c);
      if (gradients.db.data != nullptr) gradients.db(c) += value;
      if (gradients.dw.data == nullptr) continue;
      for (std::int64_t k = 0; k < weight.inputs; ++k) gradients.dw(k, c) += x(r, k) * value;
    }
  });
}

template <class T>
std::size_t linear_backward_workspace_bytes(const typename PackedWeight<T>::State& weight,
                                            std::int64_t rows, int threads) {
  if constexpr (std::is_same_v<T, float>) {
    if (weight.small) return small_linear_backward_workspace_bytes(weight, rows, threads);
  }
  return with_compute<T>(weight, [&](auto compute) {
    return BackwardTiles<T, decltype(compute)>::bytes(weight, rows, threads);
  });
}

template <>
std::size_t linear_backward_workspace_bytes<double>(const PackedWeight<double>::State&,
                                                    std::int64_t, int) {
  return 0;
}

#define TGR_INSTANTIATE(T)                                                               \
  template void pack_weight<T>(Cpu, PackedWeight<T>::State&, View<const T, 2>);          \
  template void linear<T>(Cpu, Rows<const T>, const PackedWeight<T>::State&,             \
                          const LinearOptions<T>&, Rows<T>, Rows<T>);                    \
  template std::size_t linear_workspace_bytes<T>(const PackedWeight<T>::State&, int);    \
  template void linear_backward<T>(Cpu, Rows<const T>, const PackedWeight<T>::State&,    \
                                   Rows<const T>, const LinearBackwardOptions<T>&,       \
                                   const LinearGradients<T>&);                           \
  template std::size_t linear_backward_workspace_bytes<T>(const PackedWeight<T>::State&, \
                                                          std::int64_t, int);
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops::kernels
