#include "turbogr/ops/dense/linear_dnnl.h"

#include <omp.h>

#include <algorithm>
#include <string>

#include "turbogr/core/check.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/workspace.h"

namespace turbogr::ops {
namespace {

using dnnl::memory;

memory::data_type dnnl_type(DType dtype) {
  TGR_ASSERT(dtype == DType::kF32 || dtype == DType::kBf16);
  return dtype == DType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

std::size_t aligned(std::size_t bytes) {
  return workspace_bytes_of<std::byte>(static_cast<std::int64_t>(bytes));
}

// oneDNN takes operands it only reads through the same handle as those it writes.
memory operand(const memory::desc& desc, const dnnl::engine& engine, const void* data) {
  return memory(desc, engine, const_cast<void*>(data));
}

// oneDNN does not look whether the memory for its code was there.
void check_room() {
  constexpr std::size_t kRoom = std::size_t{8} << 20;
  if (!detail::host_has(kRoom)) {
    throw OutOfMemory("out of memory on cpu: less than " + std::to_string(kRoom) +
                      " bytes are left for the code of a matrix product");
  }
}

Prepared prepare_matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                        const memory::desc& c, bool add) {
  check_room();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (add) {
    dnnl::post_ops post;
    post.append_sum(1.0f);
    attributes.set_post_ops(post);
  }
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(a, b, c), attributes, engine);
  return {dnnl::matmul(plan), a, plan.weights_desc(), c, plan.scratchpad_desc()};
}

void execute(const Prepared& product, const dnnl::engine& engine, const dnnl::stream& stream,
             const void* a, const void* b, void* c, std::byte* scratch) {
  try {
    product.primitive.execute(stream,
                              {{DNNL_ARG_SRC, operand(product.first, engine, a)},
                               {DNNL_ARG_WEIGHTS, operand(product.second, engine, b)},
                               {DNNL_ARG_DST, memory(product.result, engine, c)},
                               {DNNL_ARG_SCRATCHPAD, memory(product.scratch, engine, scratch)}});
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_out_of_memory) throw;
    throw OutOfMemory("out of memory on cpu: none is left for a matrix product");
  }
}

}  // namespace

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

PackedProduct::PackedProduct(DType stored, DType compute, std::int64_t k, std::int64_t n,
                             std::int64_t row_stride, std::int64_t col_stride)
    : engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      n_(n),
      source_step_(kTileCols * col_stride * static_cast<std::int64_t>(size_of(stored))) {
  const OneThread one_thread;
  const auto type = dnnl_type(compute);
  const auto add_width = [&](std::int64_t cols) {
    Width width;
    width.cols = cols;
    // The layout is the tallest product's choice; the others are made for it.
    memory::desc packed({k, cols}, type, memory::format_tag::any);
    for (int size = kSizes - 1; size >= 0; --size) {
      const std::int64_t rows = kTileRows >> (kSizes - 1 - size);
      const memory::desc a({rows, k}, type, memory::dims{k, 1});
      const memory::desc c({rows, cols}, memory::data_type::f32, memory::dims{cols, 1});
      Prepared product = prepare_matmul(engine_, a, packed, c, false);
      packed = product.second;
      scratch_bytes_ = std::max(scratch_bytes_, aligned(product.scratch.get_size()));
      width.products[static_cast<std::size_t>(size)] = std::move(product);
    }
    width.packed_bytes = aligned(packed.get_size());
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const memory::desc source({k, cols}, dnnl_type(stored), memory::dims{row_stride, col_stride});
    const dnnl::reorder::primitive_desc plan(engine_, source, engine_, packed, attributes);
    width.reorder = {dnnl::reorder(plan), source, {}, packed, plan.scratchpad_desc()};
    scratch_bytes_ = std::max(scratch_bytes_, aligned(width.reorder.scratch.get_size()));
    widths_.push_back(std::move(width));
  };
  if (n >= kTileCols) add_width(kTileCols);
  if (n % kTileCols != 0) add_width(n % kTileCols);
}

std::size_t PackedProduct::packed_bytes() const {
  std::size_t bytes = 0;
  for (std::int64_t tile = 0; tile < tiles(); ++tile) bytes += width_of(tile).packed_bytes;
  return bytes;
}

void PackedProduct::pack(std::int64_t tile, const void* b, std::byte* packed,
                         std::byte* scratch) const {
  const OneThread one_thread;
  const Width& width = width_of(tile);
  const void* source = static_cast<const std::byte*>(b) + tile * source_step_;
  std::byte* target = packed + static_cast<std::size_t>(tile) * widths_.front().packed_bytes;
  width.reorder.primitive.execute(
      stream_, {{DNNL_ARG_FROM, operand(width.reorder.first, engine_, source)},
                {DNNL_ARG_TO, memory(width.reorder.result, engine_, target)},
                {DNNL_ARG_SCRATCHPAD, memory(width.reorder.scratch, engine_, scratch)}});
}

std::int64_t PackedProduct::padded_rows(std::int64_t rows) {
  std::int64_t padded = kTileRows >> (kSizes - 1);
  while (padded < rows) padded *= 2;
  return padded;
}

void PackedProduct::run(std::int64_t tile, std::int64_t rows, const void* a,
                        const std::byte* packed, float* c, std::byte* scratch) const {
  const OneThread one_thread;
  std::size_t size = 0;
  while ((kTileRows >> (kSizes - 1 - size)) < rows) ++size;
  execute(width_of(tile).products[size], engine_, stream_, a,
          packed + static_cast<std::size_t>(tile) * widths_.front().packed_bytes, c, scratch);
}

GradientProduct::GradientProduct(DType compute, std::int64_t k, std::int64_t n)
    : engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      k_(k),
      n_(n),
      // Larger tiles are faster, but eight or more should share the work of a large matrix.
      tile_k_(k * n >= 4 * 1024 * 1024 ? 512 : 256),
      tile_n_(k * n >= 4 * 1024 * 1024 ? 1024
              : k * n >= 1024 * 1024   ? 512
                                       : 256),
      element_bytes_(static_cast<std::int64_t>(size_of(compute))) {
  const OneThread one_thread;
  const auto type = dnnl_type(compute);
  for (int shape = 0; shape < 4; ++shape) {
    const std::int64_t tile_k = shape / 2 == 0 ? tile_k_ : k % tile_k_;
    const std::int64_t tile_n = shape % 2 == 0 ? tile_n_ : n % tile_n_;
    if (tile_k > k || tile_n > n || tile_k == 0 || tile_n == 0) continue;  // no such tile
    for (int size = 0; size < kSizes; ++size) {
      const std::int64_t rows = kMinRows << size;
      const memory::desc a({tile_k, rows}, type, memory::dims{1, k});
      const memory::desc b({rows, tile_n}, type, memory::dims{n, 1});
      const memory::desc c({tile_k, tile_n}, memory::data_type::f32, memory::dims{n, 1});
      Prepared product = prepare_matmul(engine_, a, b, c, true);
      scratch_bytes_ = std::max(scratch_bytes_, aligned(product.scratch.get_size()));
      shapes_[static_cast<std::size_t>(shape)][static_cast<std::size_t>(size)] = std::move(product);
    }
  }
}

void GradientProduct::run(std::int64_t tile, std::int64_t rows, const void* a, const void* b,
                          float* c, std::byte* scratch) const {
  const OneThread one_thread;
  const std::int64_t first_k = tile / tiles_of(n_, tile_n_) * tile_k_;
  const std::int64_t first_n = tile % tiles_of(n_, tile_n_) * tile_n_;
  const std::size_t shape = (first_k + tile_k_ > k_ ? 2u : 0u) + (first_n + tile_n_ > n_ ? 1u : 0u);
  std::size_t size = 0;
  while ((kMinRows << size) < rows) ++size;
  execute(shapes_[shape][size], engine_, stream_,
          static_cast<const std::byte*>(a) + first_k * element_bytes_,
          static_cast<const std::byte*>(b) + first_n * element_bytes_, c + first_k * n_ + first_n,
          scratch);
}

}  // namespace turbogr::ops
