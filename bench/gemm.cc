#include "bench/gemm.h"

#include "turbogr/core/check.h"

#if TGR_WITH_ONEDNN

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>

namespace turbogr::bench {
namespace {

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace

struct Gemm::Parts {
  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul product;
};

Gemm::Gemm(const GemmShape& shape, int threads) : parts_(std::make_unique<Parts>()) {
  using Tag = dnnl::memory::format_tag;
  omp_set_num_threads(threads);  // oneDNN fixes its split when the primitive is made
  const dnnl::memory::desc a({shape.batch, shape.m, shape.k}, dnnl_type(shape.dtype),
                             shape.transpose_a ? Tag::acb : Tag::abc);
  const dnnl::memory::desc b({shape.batch, shape.k, shape.n}, dnnl_type(shape.dtype),
                             shape.transpose_b ? Tag::acb : Tag::abc);
  const dnnl::memory::desc c({shape.batch, shape.m, shape.n}, dnnl_type(shape.out), Tag::abc);
  parts_->threads = threads;
  parts_->description = {dnnl::matmul::desc(a, b, c), parts_->engine};
  parts_->product = dnnl::matmul(parts_->description);
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::run(const void* a, const void* b, void* c) const {
  omp_set_num_threads(parts_->threads);
  const auto wrap = [&](const dnnl::memory::desc& description, const void* data) {
    return dnnl::memory(description, parts_->engine, const_cast<void*>(data));
  };
  parts_->product.execute(parts_->stream,
                          {{DNNL_ARG_SRC, wrap(parts_->description.src_desc(), a)},
                           {DNNL_ARG_WEIGHTS, wrap(parts_->description.weights_desc(), b)},
                           {DNNL_ARG_DST, wrap(parts_->description.dst_desc(), c)}});
  parts_->stream.wait();
}

}  // namespace turbogr::bench

#else

namespace turbogr::bench {

struct Gemm::Parts {};

// A rival made of plain loops would flatter us.
Gemm::Gemm(const GemmShape&, int) {
  detail::throw_error(
      "this build has no oneDNN to make the rival and the roof of; measure CPU "
      "operators with the CPU build (`make build`)");
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
void Gemm::run(const void*, const void*, void*) const {}

}  // namespace turbogr::bench

#endif
