#include "turbogr/ops/softmax/sampled_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/index_range.h"
#include "turbogr/ops/softmax/sampled_softmax_kernels.h"

namespace turbogr::ops {
namespace {

using kernels::Candidates;
using kernels::SoftmaxProblem;

void check_indices(const Context& ctx, const char* op, const char* name, const std::int32_t* data,
                   std::int64_t count, std::int64_t bound) {
  if (ctx.device() != Device::kCpu) return;
  const std::int64_t bad = first_out_of_range(ctx.pool(), data, count, bound);
  TGR_CHECK(bad < 0, op, ": ", name, " row ", data[bad < 0 ? 0 : bad], " at position ", bad,
            " for ", bound, " rows of items; it must be at least 0 and below that");
}

// Each token once.
void check_order(const Context& ctx, const char* op, View<const std::int32_t, 1> order,
                 std::int64_t tokens) {
  check_vector(op, "order", order, tokens);
  if (ctx.device() != Device::kCpu) return;
  WorkspaceScope scratch(ctx.workspace());
  const View<std::uint8_t, 1> seen = scratch.take<std::uint8_t>(tokens);
  std::fill_n(seen.data, tokens, std::uint8_t{0});
  for (std::int64_t place = 0; place < tokens; ++place) {
    const std::int32_t token = order(place);
    TGR_CHECK(token >= 0 && token < tokens && seen(token) == 0, op, ": order names token ", token,
              " at place ", place, "; it must name each of ", tokens, " tokens once");
    seen(token) = 1;
  }
}

template <class T>
void check_problem(const Context& ctx, const char* op, const SoftmaxProblem<T>& problem) {
  const SampledSoftmaxInputs<T>& in = problem.inputs;
  const SoftmaxOptions& options = problem.options;
  const std::int64_t tokens = in.query.rows;
  TGR_CHECK(options.temperature > 0 && std::isfinite(options.temperature), op, ": temperature is ",
            options.temperature, "; it must be above 0");
  TGR_CHECK(options.eps > 0 || !options.normalize, op, ": eps is ", options.eps,
            "; normalising needs one above 0");
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t items = problem.num_items();
  TGR_CHECK(items <= kMost && tokens <= kMost, op, ": ", tokens, " tokens and ", items,
            " items; at most 2^31 - 1 of each fit one call");
  check_rows(op, "query", in.query, tokens, in.query.cols);
  check_rows(op, "items", in.items, in.items.rows, in.query.cols);
  if (problem.half()) {
    TGR_CHECK(problem.candidates != Candidates::kAll, op,
              ": f16 rows are for sampled negatives; leave negative_items empty");
    check_rows(op, "negative_items", in.negative_items.values, items, in.query.cols);
    check_vector(op, "scale of negative_items", in.negative_items.scale, items);
    TGR_CHECK(in.items.rows <= items, op, ": ", in.items.rows, " items and ", items,
              " negative_items; the same rows stand first in both, so items has no more");
  }
  check_vector(op, "positive", in.positive, tokens);
  check_indices(ctx, op, "positive", in.positive.data, tokens, in.items.rows);
  if (problem.candidates == Candidates::kOwn) {
    TGR_CHECK(in.negatives.shape[0] == tokens, op, ": negatives of ", in.negatives.shape[0],
              " tokens for ", tokens, "; give each its own, or shared ones");
    check_indices(ctx, op, "negative", in.negatives.data, in.negatives.size(), items);
  } else if (problem.candidates == Candidates::kShared) {
    check_indices(ctx, op, "negative", in.shared_negatives.data, in.shared_negatives.shape[0],
                  items);
  }
  if (in.correction.data != nullptr) {
    check_vector(op, "correction", in.correction, items);
  }
  TGR_CHECK(options.sharing_factor >= 1, op, ": a sharing factor of ", options.sharing_factor,
            "; it must be 1 or more");
  if (options.sharing != NegativeSharing::kNone) {
    TGR_CHECK(problem.candidates == Candidates::kOwn, op,
              ": tokens with one set of negatives have nothing to share; give each its own, or set "
              "sharing to kNone");
    check_order(ctx, op, in.order, tokens);
  }
}

template <class T>
SoftmaxProblem<T> sampled_problem(const char* op, const SampledSoftmaxInputs<T>& inputs,
                                  const SoftmaxOptions& options) {
  const bool own = inputs.negatives.data != nullptr;
  const bool shared = inputs.shared_negatives.data != nullptr;
  TGR_CHECK(own != shared || inputs.query.rows == 0, op, ": ", own ? "both" : "neither",
            " of negatives and shared_negatives given; give one of them");
  SoftmaxProblem<T> problem = {inputs, own || !shared ? Candidates::kOwn : Candidates::kShared,
                               options};
  if (options.sharing == NegativeSharing::kNone) problem.inputs.order = {};
  return problem;
}

template <class T>
void check_output(const char* op, const SoftmaxProblem<T>& problem,
                  const SoftmaxOutput<T>& output) {
  check_vector(op, "loss", output.loss, problem.tokens());
  check_vector(op, "log_sum_exp", output.log_sum_exp, problem.tokens());
}

template <class T>
void check_gradients(const char* op, const SoftmaxProblem<T>& problem,
                     View<const Accum<T>, 1> dloss, Rows<T> dquery, Rows<Accum<T>> ditems) {
  check_vector(op, "dloss", dloss, problem.tokens());
  check_rows(op, "dquery", dquery, problem.tokens(), problem.width());
  check_rows(op, "ditems", ditems, problem.num_items(), problem.width());
}

template <class T>
void forward(const Context& ctx, const char* op, const SoftmaxProblem<T>& problem,
             const SoftmaxOutput<T>& output) {
  check_problem(ctx, op, problem);
  check_output(op, problem, output);
  if (problem.tokens() == 0) return;
  const SectionScope section = section_scope(ctx, Section::kLoss);
  on_device(ctx, [&](auto device) { kernels::softmax<T>(device, problem, output); });
}

template <class T>
void backward(const Context& ctx, const char* op, const SoftmaxProblem<T>& problem,
              View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss, Rows<T> dquery,
              Rows<Accum<T>> ditems) {
  check_problem(ctx, op, problem);
  check_vector(op, "log_sum_exp", log_sum_exp, problem.tokens());
  check_gradients(op, problem, dloss, dquery, ditems);
  if (problem.tokens() == 0) return;
  const SectionScope section = section_scope(ctx, Section::kLoss);
  on_device(ctx, [&](auto device) {
    kernels::softmax_backward<T>(device, problem, log_sum_exp, dloss, dquery, ditems);
  });
}

}  // namespace

template <class T>
void sampled_softmax(const Context& ctx, const SampledSoftmaxInputs<T>& inputs,
                     const SoftmaxOptions& options, const SoftmaxOutput<T>& output) {
  const char* op = "sampled_softmax";
  forward<T>(ctx, op, sampled_problem(op, inputs, options), output);
}

template <class T>
void sampled_softmax_backward(const Context& ctx, const SampledSoftmaxInputs<T>& inputs,
                              const SoftmaxOptions& options, View<const Accum<T>, 1> log_sum_exp,
                              View<const Accum<T>, 1> dloss, Rows<T> dquery,
                              Rows<Accum<T>> ditems) {
  const char* op = "sampled_softmax_backward";
  backward<T>(ctx, op, sampled_problem(op, inputs, options), log_sum_exp, dloss, dquery, ditems);
}

template <class T>
void sampled_softmax_with_gradients(const Context& ctx, const SampledSoftmaxInputs<T>& inputs,
                                    const SoftmaxOptions& options, View<const Accum<T>, 1> dloss,
                                    const SoftmaxOutput<T>& output, Rows<T> dquery,
                                    Rows<Accum<T>> ditems) {
  const char* op = "sampled_softmax_with_gradients";
  const SoftmaxProblem<T> problem = sampled_problem(op, inputs, options);
  check_problem(ctx, op, problem);
  check_output(op, problem, output);
  check_gradients(op, problem, dloss, dquery, ditems);
  if (problem.tokens() == 0) return;
  const SectionScope section = section_scope(ctx, Section::kLoss);
  on_device(ctx, [&](auto device) {
    kernels::softmax_with_gradients<T>(device, problem, dloss, output, dquery, ditems);
  });
}

template <class T>
void full_softmax(const Context& ctx, Rows<const T> query, Rows<const T> items,
                  View<const std::int32_t, 1> positive, const SoftmaxOptions& options,
                  const SoftmaxOutput<T>& output) {
  forward<T>(ctx, "full_softmax",
             {{.query = query, .items = items, .positive = positive}, Candidates::kAll, options},
             output);
}

template <class T>
void full_softmax_backward(const Context& ctx, Rows<const T> query, Rows<const T> items,
                           View<const std::int32_t, 1> positive, const SoftmaxOptions& options,
                           View<const Accum<T>, 1> log_sum_exp, View<const Accum<T>, 1> dloss,
                           Rows<T> dquery, Rows<Accum<T>> ditems) {
  backward<T>(ctx, "full_softmax_backward",
              {{.query = query, .items = items, .positive = positive}, Candidates::kAll, options},
              log_sum_exp, dloss, dquery, ditems);
}

std::size_t softmax_workspace_bytes(const Context& ctx, std::int64_t tokens, std::int64_t items,
                                    std::int64_t width, std::int64_t own_negatives,
                                    const SoftmaxOptions& options) {
  std::size_t bytes = 0;
  on_device(ctx, [&](auto device) {
    bytes = kernels::softmax_workspace_bytes(device, tokens, items, width, own_negatives, options);
  });
  return std::max(bytes, workspace_bytes_of<std::uint8_t>(tokens));
}

#define TGR_INSTANTIATE(T)                                                                     \
  template void sampled_softmax<T>(const Context&, const SampledSoftmaxInputs<T>&,             \
                                   const SoftmaxOptions&, const SoftmaxOutput<T>&);            \
  template void sampled_softmax_backward<T>(const Context&, const SampledSoftmaxInputs<T>&,    \
                                            const SoftmaxOptions&, View<const Accum<T>, 1>,    \
                                            View<const Accum<T>, 1>, Rows<T>, Rows<Accum<T>>); \
  template void sampled_softmax_with_gradients<T>(                                             \
      const Context&, const SampledSoftmaxInputs<T>&, const SoftmaxOptions&,                   \
      View<const Accum<T>, 1>, const SoftmaxOutput<T>&, Rows<T>, Rows<Accum<T>>);              \
  template void full_softmax<T>(const Context&, Rows<const T>, Rows<const T>,                  \
                                View<const std::int32_t, 1>, const SoftmaxOptions&,            \
                                const SoftmaxOutput<T>&);                                      \
  template void full_softmax_backward<T>(const Context&, Rows<const T>, Rows<const T>,         \
                                         View<const std::int32_t, 1>, const SoftmaxOptions&,   \
                                         View<const Accum<T>, 1>, View<const Accum<T>, 1>,     \
                                         Rows<T>, Rows<Accum<T>>);
TGR_INSTANTIATE(double)
TGR_INSTANTIATE(float)
TGR_INSTANTIATE(bf16)
#undef TGR_INSTANTIATE

}  // namespace turbogr::ops
