#include "bench/tables_bench.h"

#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/philox.h"
#include "turbogr/embedding/local_rows.h"
#include "turbogr/embedding/touched_rows.h"
#include "turbogr/ops/dense/convert.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::bench {
namespace {

using embedding::Lane;
using embedding::Part;

constexpr double kRate = 0.01;

// One step over and over, on tables of equal size.
class TableSteps {
 public:
  TableSteps(const Context& ctx, const TablesProblem& problem, std::int64_t tables)
      : ctx_(ctx), width_(problem.width) {
    const std::int64_t rows = problem.rows / tables, ids = problem.ids / tables;
    std::vector<embedding::TableOptions> options;
    std::vector<std::int64_t> most;
    PhiloxStream random(problem.seed);
    for (std::int64_t t = 0; t < tables; ++t) {
      options.push_back({.rows = rows,
                         .width = width_,
                         .optimiser = embedding::SparseOptimiser::kAdaGrad,
                         .seed = problem.seed + static_cast<std::uint64_t>(t)});
      most.push_back(ids);
      touched_.emplace_back(rows, ids);
      ids_.emplace_back();
      for (std::int64_t i = 0; i < ids; ++i) {
        // Squares: few rows are popular.
        const double share = random.uniform();
        ids_.back().push_back(static_cast<std::int64_t>(share * share * static_cast<double>(rows)));
      }
    }
    source_ = std::make_unique<embedding::LocalRows<float>>(options, ctx.device());
    source_->initialise(ctx);
    request_ = source_->make_request(ctx, most);
    fetched_ = Tensor(DType::kF32, {problem.ids, width_}, ctx.device());
    gradients_ = Tensor(DType::kF32, {problem.ids, width_}, ctx.device());
    ops::fill<float>(ctx, 1.0f, {reinterpret_cast<float*>(gradients_.data()), {gradients_.size()}});
    squares_ = Tensor(DType::kF64, {tables}, ctx.device());
    settings_.assign(static_cast<std::size_t>(tables), AdamWSettings{});
    for (AdamWSettings& each : settings_) each.rate = kRate;
    ctx.workspace().reserve(ops::squared_sum_workspace_bytes(ctx, problem.ids * width_));
  }

  void run() {
    std::int64_t first = 0;
    std::vector<embedding::StepRows<float>> rows;
    std::vector<Rows<const float>> gradients;
    for (std::size_t t = 0; t < touched_.size(); ++t) {
      touched_[t].clear();
      touched_[t].mark(ctx_.host(), {ids_[t].data(), {std::ssize(ids_[t])}});
      touched_[t].number(ctx_.host());
      const std::int64_t count = touched_[t].ids().shape[0];
      rows.push_back({at(fetched_, first, count), {}});
      gradients.push_back(at(gradients_, first, count));
      first += count;
    }
    source_->prepare(ctx_, Lane::kThis, {.step = steps_++, .tables = touched_}, *request_);
    source_->fetch(ctx_, Lane::kThis, *request_, rows);
    source_->return_gradients(ctx_, Lane::kThis, *request_, Part::kAll, gradients,
                              squares_.view<double, 1>().data);
    source_->update(ctx_, Lane::kThis, *request_, Part::kAll, settings_, nullptr);
    synchronize(ctx_);
  }

  // AdaGrad's first step goes by its rate, whatever the gradient.
  void check() {
    std::vector<Tensor> before;
    for (std::size_t t = 0; t < touched_.size(); ++t) before.push_back(weights(t));
    run();
    for (std::size_t t = 0; t < touched_.size(); ++t) {
      const Tensor after = weights(t);
      for (std::int64_t row = 0; row < after.shape()[0]; ++row) {
        const double moved = static_cast<double>(before[t].view<float, 2>()(row, 0)) -
                             after.view<float, 2>()(row, 0);
        const double wanted = touched_[t].find(row) >= 0 ? kRate : 0;
        TGR_CHECK(std::abs(moved - wanted) < 1e-6, "table ", t, " row ", row, " moved by ", moved,
                  " and was to move by ", wanted);
      }
    }
  }

  std::size_t bytes() const { return source_->bytes().on(ctx_.device()); }

 private:
  Rows<float> at(Tensor& tensor, std::int64_t first, std::int64_t count) const {
    return {reinterpret_cast<float*>(tensor.data()) + first * width_, count, width_, width_};
  }
  Tensor weights(std::size_t table) {
    Tensor host(DType::kF32, source_->shard(table).weight_tensor().shape());
    copy_tensor(ctx_, host, source_->shard(table).weight_tensor());
    synchronize(ctx_);
    return host;
  }

  const Context& ctx_;
  std::int64_t width_, steps_ = 0;
  std::vector<std::vector<std::int64_t>> ids_;
  std::vector<embedding::TouchedRows> touched_;
  std::unique_ptr<embedding::LocalRows<float>> source_;
  std::unique_ptr<embedding::RowRequest> request_;
  Tensor fetched_, gradients_, squares_;
  std::vector<AdamWSettings> settings_;
};

}  // namespace

TablesFigures time_tables(const TablesProblem& problem) {
  TGR_CHECK(problem.tables >= 1 && problem.rows >= problem.tables && problem.ids >= problem.tables,
            problem.tables, " tables with ", problem.rows, " rows and ", problem.ids,
            " ids in all; give each at least one");
  const Context ctx({.device = problem.device, .threads = problem.threads});
  TableSteps many(ctx, problem, problem.tables), one(ctx, problem, 1);
  many.check();
  one.check();
  TablesFigures figures;
  std::tie(figures.many, figures.one) =
      time_in_turn([&] { many.run(); }, [&] { one.run(); }, problem.seconds, 5);
  figures.bytes = static_cast<double>(one.bytes());
  return figures;
}

}  // namespace turbogr::bench
