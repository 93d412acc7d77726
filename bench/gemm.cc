#include "bench/gemm.h"

#include "turbogr/core/check.h"

#if TGR_WITH_ONEDNN

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace turbogr::bench {
namespace {

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace

struct Gemm::Parts {
  const Context* ctx;
  GemmShape shape;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul product;
  bool widened = false;
  std::vector<float> wide_a, wide_b, wide_c;  // when widened; c only for a bf16 result

  void prepare() {
    using Tag = dnnl::memory::format_tag;
    omp_set_num_threads(ctx->threads());  // oneDNN fixes its split when the primitive is made
    const DType in = widened ? DType::kF32 : shape.dtype, out = widened ? DType::kF32 : shape.out;
    const dnnl::memory::desc a({shape.batch, shape.m, shape.k}, dnnl_type(in),
                               shape.transpose_a ? Tag::acb : Tag::abc);
    const dnnl::memory::desc b({shape.batch, shape.k, shape.n}, dnnl_type(in),
                               shape.transpose_b ? Tag::acb : Tag::abc);
    const dnnl::memory::desc c({shape.batch, shape.m, shape.n}, dnnl_type(out), Tag::abc);
    description = {dnnl::matmul::desc(a, b, c), engine};
    product = dnnl::matmul(description);
  }

  void multiply(const void* a, const void* b, void* c) {
    omp_set_num_threads(ctx->threads());
    const auto wrap = [&](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, engine, const_cast<void*>(data));
    };
    product.execute(stream, {{DNNL_ARG_SRC, wrap(description.src_desc(), a)},
                             {DNNL_ARG_WEIGHTS, wrap(description.weights_desc(), b)},
                             {DNNL_ARG_DST, wrap(description.dst_desc(), c)}});
    stream.wait();
  }

  template <class From, class To>
  void copy(const From* from, To* to, std::size_t size) const {
    constexpr std::int64_t kPiece = 1 << 14;
    parallel_ranges(ctx->pool(), static_cast<std::int64_t>(size), kPiece,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t i = begin; i < end; ++i) to[i] = convert<To>(from[i]);
                    });
  }
};

Gemm::Gemm(const GemmShape& shape, const Context& ctx) : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.ctx = &ctx;
  p.shape = shape;
  try {
    p.prepare();
  } catch (const dnnl::error& error) {
    if (shape.dtype != DType::kBf16 || error.status != dnnl_unimplemented) throw;
    p.widened = true;
    p.wide_a.resize(static_cast<std::size_t>(shape.batch * shape.m * shape.k));
    p.wide_b.resize(static_cast<std::size_t>(shape.batch * shape.k * shape.n));
    if (shape.out == DType::kBf16) {
      p.wide_c.resize(static_cast<std::size_t>(shape.batch * shape.m * shape.n));
    }
    p.prepare();
  }
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

void Gemm::run(const void* a, const void* b, void* c) const {
  Parts& p = *parts_;
  if (!p.widened) {
    p.multiply(a, b, c);
    return;
  }
  p.copy(static_cast<const bf16*>(a), p.wide_a.data(), p.wide_a.size());
  p.copy(static_cast<const bf16*>(b), p.wide_b.data(), p.wide_b.size());
  p.multiply(p.wide_a.data(), p.wide_b.data(), p.wide_c.empty() ? c : p.wide_c.data());
  p.copy(p.wide_c.data(), static_cast<bf16*>(c), p.wide_c.size());
}

}  // namespace turbogr::bench

#else

namespace turbogr::bench {

struct Gemm::Parts {};

// A baseline made of plain loops would flatter us.
Gemm::Gemm(const GemmShape&, const Context&) {
  detail::throw_error(
      "this build has no oneDNN to make the baseline and the peak of; measure CPU "
      "operators with the CPU build (`make build`)");
}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
void Gemm::run(const void*, const void*, void*) const {}

}  // namespace turbogr::bench

#endif
