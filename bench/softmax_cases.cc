#include "bench/row_case.h"
#include "turbogr/ops/softmax/sampled_softmax.h"

namespace turbogr::bench {
namespace {

constexpr std::int64_t kOwnNegatives = 128;
constexpr std::int64_t kSharedNegatives = 512;
constexpr std::int64_t kSharedTableRows = 8192;
constexpr std::int64_t kCatalogue = 1024;

enum class Candidates : std::uint8_t { kOwn, kShared, kAll };

template <class T, Candidates kKind>
struct SoftmaxRun {
  using A = Accum<T>;
  const Context& ctx;
  std::int64_t rows, cols, num_items;
  Buffers buffers;
  View<T, 2> query, items;
  View<std::int32_t, 1> positive, negatives;
  View<A, 1> dloss, loss, log_sum_exp;
  View<T, 2> dquery;
  View<A, 2> ditems;
  std::size_t scratch_bytes;

  SoftmaxRun(const Context& ctx_in, const Batch& batch)
      : ctx(ctx_in),
        rows(batch.rows()),
        cols(batch.problem.width()),
        num_items(kKind == Candidates::kOwn      ? batch.problem.table_rows
                  : kKind == Candidates::kShared ? kSharedTableRows
                                                 : kCatalogue),
        buffers(batch),
        query(buffers.input<T>(rows, cols)),
        items(buffers.input<T>(num_items, cols)),
        positive(buffers.indices<std::int32_t>(rows, num_items)),
        negatives(buffers.indices<std::int32_t>(kKind == Candidates::kOwn ? rows * kOwnNegatives
                                                : kKind == Candidates::kShared ? kSharedNegatives
                                                                               : 0,
                                                num_items)),
        dloss(buffers.input_vector<A>(rows, 0.1, 1)),
        loss(buffers.output_vector<A>(rows)),
        log_sum_exp(buffers.output_vector<A>(rows)),
        dquery(buffers.output<T>(rows, cols)),
        ditems(buffers.sum<A>(num_items, cols)),
        scratch_bytes(ops::softmax_workspace_bytes(ctx, rows, num_items, cols,
                                                   kKind == Candidates::kOwn ? kOwnNegatives : 0)) {
    ctx.workspace().reserve(scratch_bytes);
  }

  ops::SampledSoftmaxInputs<T> inputs() const {
    ops::SampledSoftmaxInputs<T> in{.query = query, .items = items, .positive = positive};
    if (kKind == Candidates::kOwn) {
      in.negatives = {negatives.data, {rows, kOwnNegatives}};
    } else {
      in.shared_negatives = negatives;
    }
    return in;
  }

  // Own negatives fetch a row of the table each, in backward for the query's gradient and again
  // for the items'; a common set makes products, in backward three.
  Work work(double fetches, double products) const {
    const double pairs = static_cast<double>(rows) * static_cast<double>(cols);
    if (kKind == Candidates::kOwn)
      return {.bytes = fetches * pairs * (kOwnNegatives + 1) * sizeof(T)};
    const std::int64_t candidates = kKind == Candidates::kShared ? kSharedNegatives : kCatalogue;
    return {.flops = 2 * products * pairs * static_cast<double>(candidates)};
  }
  Work forward_work() const { return work(1, 1); }
  Work backward_work() const { return work(2, 3); }

  void forward() {
    if constexpr (kKind == Candidates::kAll) {
      ops::full_softmax<T>(ctx, query, items, positive, {}, {loss, log_sum_exp});
    } else {
      ops::sampled_softmax<T>(ctx, inputs(), {}, {loss, log_sum_exp});
    }
  }
  void backward() {
    if constexpr (kKind == Candidates::kAll) {
      ops::full_softmax_backward<T>(ctx, query, items, positive, {}, log_sum_exp, dloss, dquery,
                                    ditems);
    } else {
      ops::sampled_softmax_backward<T>(ctx, inputs(), {}, log_sum_exp, dloss, dquery, ditems);
    }
  }
};

template <class T>
using OwnRun = SoftmaxRun<T, Candidates::kOwn>;
template <class T>
using SharedRun = SoftmaxRun<T, Candidates::kShared>;
template <class T>
using AllRun = SoftmaxRun<T, Candidates::kAll>;

}  // namespace

std::vector<OpFamily> softmax_families() {
  return {row_family<OwnRun>("sampled_softmax"), row_family<SharedRun>("shared_softmax"),
          row_family<AllRun>("full_softmax")};
}

}  // namespace turbogr::bench
