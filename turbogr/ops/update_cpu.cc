#include <algorithm>
#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/ops/update_kernels.h"
#include "turbogr/ops/update_simd.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kRowsAPiece = 64;

// Calls body(slice, begin, count, piece) for every piece of every slice, over all threads.
template <class Body>
void over_pieces(Cpu cpu, const UpdateSlices& slices, Body&& body) {
  const UpdateSlices::Piece* pieces = slices.device_pieces();
  parallel_for(cpu.pool, slices.num_pieces(), [&](std::int64_t piece, int) {
    const UpdateSlice& slice = slices.slices()[static_cast<std::size_t>(pieces[piece].slice)];
    const std::int64_t begin = pieces[piece].begin;
    body(slice, begin, std::min(UpdateSlices::kPiece, slice.count - begin), piece);
  });
}

double sum_of(View<const double, 1> values) {
  double total = 0;
  for (std::int64_t i = 0; i < values.shape[0]; ++i) total += values(i);
  return total;
}

// The settings with the step's own scale in them.
AdamWSettings scaled(const AdamWSettings& settings, const StepScale* scale) {
  AdamWSettings own = settings;
  if (scale != nullptr) own.gradient_scale *= scale->scale;
  return own;
}

bool may_update(const StepScale* scale) { return scale == nullptr || scale->finite != 0; }

}  // namespace

void squared_sum(Cpu cpu, const UpdateSlices& slices, double* sum) {
  WorkspaceScope scratch(cpu.workspace);
  const View<double, 1> sums = scratch.take<double>(slices.num_pieces());
  const UpdateTable& table = update_table(cpu.simd);
  over_pieces(
      cpu, slices,
      [&](const UpdateSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t piece) {
        sums(piece) = table.squared_sum(slice.gradient + begin, count);
      });
  *sum = sum_of(sums);
}

void squared_sum(Cpu cpu, View<const float, 1> values, double* sum) {
  WorkspaceScope scratch(cpu.workspace);
  constexpr std::int64_t kPiece = UpdateSlices::kPiece;
  const std::int64_t count = values.shape[0];
  const View<double, 1> sums = scratch.take<double>((count + kPiece - 1) / kPiece);
  const UpdateTable& table = update_table(cpu.simd);
  parallel_for(cpu.pool, sums.shape[0], [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPiece;
    sums(piece) = table.squared_sum(values.data + begin, std::min(kPiece, count - begin));
  });
  *sum = sum_of(sums);
}

void make_step_scale(Cpu, View<const double, 1> squares, View<const double, 1> losses,
                     const StepScaleOptions& options, StepScale* scale) {
  const double square = sum_of(squares);
  scale->loss = options.loss_weight * sum_of(losses);
  scale->norm = std::sqrt(square);
  scale->finite = std::isfinite(square) && std::isfinite(scale->loss) ? 1 : 0;
  scale->scale = options.clip > 0 && scale->norm > options.clip ? options.clip / scale->norm : 1;
}

void adamw(Cpu cpu, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale) {
  if (!may_update(scale)) return;
  const AdamWCoefficients k = adamw_coefficients(scaled(settings, scale));
  const UpdateTable& table = update_table(cpu.simd);
  over_pieces(cpu, slices,
              [&](const UpdateSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t) {
                AdamWCoefficients own = k;
                own.decay *= static_cast<float>(slice.decay_factor);
                table.adamw(own, slice.gradient + begin, count, slice.weight + begin,
                            slice.first_moment + begin, slice.second_moment + begin);
              });
}

void update_rows(Cpu cpu, RowOptimiser optimiser, const TableRows& rows,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale) {
  if (!may_update(scale)) return;
  const AdamWSettings own = scaled(settings, scale);
  const AdamWCoefficients k = adamw_coefficients(own);
  const auto keep = static_cast<float>(1 - own.rate * own.decay);
  const UpdateTable& table = update_table(cpu.simd);
  const std::int64_t width = rows.weight.shape[1];
  const auto update_row = [&](std::int64_t id, const float* g) {
    float* w = rows.weight.data + id * width;
    switch (optimiser) {
      case RowOptimiser::kAdamW:
        table.adamw(k, g, width, w, rows.first_moment.data + id * width,
                    rows.second_moment.data + id * width);
        break;
      case RowOptimiser::kAdaGrad: {
        float& second = rows.second_moment.data[id];
        second += static_cast<float>(own.gradient_scale * own.gradient_scale *
                                     table.squared_sum(g, width) / static_cast<double>(width));
        const double size = own.rate * own.gradient_scale / std::sqrt(second + own.epsilon);
        table.descend(keep, static_cast<float>(size), g, width, w);
        break;
      }
      case RowOptimiser::kSgd:
        table.descend(keep, static_cast<float>(own.rate * own.gradient_scale), g, width, w);
        break;
    }
  };
  parallel_ranges(
      cpu.pool, ids.shape[0], kRowsAPiece, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t id = ids(i);
          TGR_CHECK(id >= 0 && id < rows.weight.shape[0], "update_rows: id ", id, " at position ",
                    i, "; the table has ", rows.weight.shape[0], " rows");
          update_row(id, gradient.row(i));
        }
      });
}

}  // namespace turbogr::ops::kernels
