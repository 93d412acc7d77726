#include <algorithm>
#include <cmath>
#include <type_traits>

#include "turbogr/ops/rows/row_simd.h"
#include "turbogr/ops/rows/step_scale.h"
#include "turbogr/ops/rows/update_kernels.h"
#include "turbogr/ops/rows/update_simd.h"

namespace turbogr::ops::kernels {
namespace {

constexpr std::int64_t kPiece = UpdateSlices::kPiece;
constexpr std::int64_t kRowsAPiece = 64;

double gradient_scale(const AdamWSettings& settings, const StepScale* scale) {
  return settings.gradient_scale * (scale == nullptr ? 1.0 : scale->scale);
}

AdamWSettings scaled(AdamWSettings settings, const StepScale* scale) {
  settings.gradient_scale = gradient_scale(settings, scale);
  return settings;
}

// Calls body(slice, begin, count, piece) for every piece of every slice, over all threads.
template <class Body>
void over_pieces(Cpu cpu, const UpdateSlices& slices, Body&& body) {
  parallel_for(cpu.pool, slices.num_pieces(), [&](std::int64_t piece, int) {
    const UpdateSlices::Piece place = slices.device_pieces()[piece];
    const UpdateSlice& slice = slices.slices()[static_cast<std::size_t>(place.slice)];
    body(slice, place.begin, std::min(kPiece, slice.count - place.begin), piece);
  });
}

double sum_in_order(View<const double, 1> parts) {
  double total = 0;
  for (std::int64_t i = 0; i < parts.shape[0]; ++i) total += parts(i);
  return total;
}

}  // namespace

void zero_gradients(Cpu cpu, const UpdateSlices& slices) {
  over_pieces(cpu, slices,
              [](const UpdateSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t) {
                std::fill_n(slice.gradient + begin, count, 0.0f);
              });
}

void squared_sum(Cpu cpu, const UpdateSlices& slices, double* sum) {
  WorkspaceScope scratch(cpu.workspace);
  const View<double, 1> parts = scratch.take<double>(slices.num_pieces());
  over_pieces(
      cpu, slices,
      [&](const UpdateSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t piece) {
        parts(piece) = update_table(cpu.simd).squared_sum(slice.gradient + begin, count);
      });
  *sum = sum_in_order(parts);
}

void squared_sum(Cpu cpu, View<const float, 1> values, double* sum) {
  WorkspaceScope scratch(cpu.workspace);
  const View<double, 1> parts = scratch.take<double>((values.shape[0] + kPiece - 1) / kPiece);
  parallel_for(cpu.pool, parts.shape[0], [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPiece;
    parts(piece) = update_table(cpu.simd).squared_sum(values.data + begin,
                                                      std::min(kPiece, values.shape[0] - begin));
  });
  *sum = sum_in_order(parts);
}

void make_step_scale(Cpu, View<const double, 1> squares, View<const double, 1> losses,
                     const StepScaleOptions& options, StepScale* scale) {
  *scale = step_scale(squares, losses, options);
}

void scale_value(Cpu, double factor, double* value) { *value *= factor; }

void adamw(Cpu cpu, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale) {
  if (scale != nullptr && scale->finite == 0) return;
  const AdamWCoefficients k = adamw_coefficients(scaled(settings, scale));
  over_pieces(cpu, slices,
              [&](const UpdateSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t) {
                AdamWCoefficients own = k;
                own.decay *= static_cast<float>(slice.decay_factor);
                update_table(cpu.simd).adamw(own, slice.gradient + begin, count,
                                             slice.weight + begin, slice.first_moment + begin,
                                             slice.second_moment + begin);
                if (slice.rounded == nullptr) return;
                for (std::int64_t i = begin; i < begin + count; ++i) {
                  slice.rounded[i] = bf16(slice.weight[i]);
                }
              });
}

namespace {

// Calls step(c, n, weights) for a row's columns [c, c + n), whose weights it changes: in place, or
// of a table in bf16 or f16 some at a time, which are rounded by chance afterwards.
template <class Weight, class Step>
void with_weights(View<Weight, 2> table, const RowKeys& keys, SimdLevel simd, std::int64_t id,
                  std::uint64_t number, Step&& step) {
  const std::int64_t width = table.shape[1];
  Weight* const row = table.data + id * width;
  if constexpr (std::is_same_v<Weight, float>) {
    step(std::int64_t{0}, width, row);
  } else {
    constexpr std::int64_t kColumns = 256;
    float weights[kColumns];
    const std::uint64_t key = keys.of(id);
    for (std::int64_t begin = 0; begin < width; begin += kColumns) {
      const std::int64_t count = std::min(kColumns, width - begin);
      row_kernels<Weight>(simd).widen(row + begin, 1.0f, count, weights);
      step(begin, count, weights);
      for (std::int64_t c = 0; c < count; c += kRoundedTogether) {
        const auto bits = rounding_bits(keys, key, number, (begin + c) / kRoundedTogether);
        for (std::int64_t j = 0; j < std::min(kRoundedTogether, count - c); ++j) {
          row[begin + c + j] = rounded_by<Weight>(weights[c + j], bits, static_cast<int>(j));
        }
      }
    }
  }
}

// Of a row's scaled gradient with its decay.
template <class Weight>
double decayed_mean_square(const float* gradient, const Weight* weight, std::int64_t width,
                           double factor, double decay) {
  double sum = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    const double slope = factor * static_cast<double>(gradient[c]) +
                         decay * static_cast<double>(convert<float>(weight[c]));
    sum += slope * slope;
  }
  return sum / static_cast<double>(width);
}

// `weights`: those of `rows` that are there.
template <class Weight>
void update_weights(Cpu cpu, RowOptimiser optimiser, const TableRows& rows, View<Weight, 2> weights,
                    View<const std::int64_t, 1> ids, Rows<const float> gradient,
                    const AdamWSettings& settings, const StepScale* scale) {
  const std::int64_t num_rows = weights.shape[0];
  const std::int64_t width = weights.shape[1];
  const auto number = static_cast<std::uint64_t>(settings.step);
  const AdamWCoefficients adamw = adamw_coefficients(scaled(settings, scale));
  const double factor = gradient_scale(settings, scale);
  const bool in_gradient = settings.decay_in_gradient && optimiser == RowOptimiser::kAdaGrad;
  const UpdateTable& table = update_table(cpu.simd);
  parallel_ranges(
      cpu.pool, ids.shape[0], kRowsAPiece, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t id = ids(i);
          TGR_CHECK(id >= 0 && id < num_rows, "item table update: id ", id, " at position ", i,
                    "; the table has ", num_rows, " rows");
          const float* g = gradient.row(i);
          double divisor = 1;
          if (optimiser == RowOptimiser::kAdaGrad) {
            const double mean = in_gradient ? decayed_mean_square(g, weights.data + id * width,
                                                                  width, factor, settings.decay)
                                            : factor * factor * table.squared_sum(g, width) /
                                                  static_cast<double>(width);
            float& second = rows.second_moment(id, 0);
            second += static_cast<float>(mean);
            divisor = adagrad_divisor(second, settings.epsilon, settings.epsilon_outside);
          }
          const auto size = static_cast<float>(settings.rate * factor / divisor);
          const double decay_rate = settings.rate / (in_gradient ? divisor : 1);
          const auto keep = static_cast<float>(1 - decay_rate * settings.decay);
          const auto step = [&](std::int64_t c, std::int64_t n, float* w) {
            if (optimiser == RowOptimiser::kAdamW) {
              table.adamw(adamw, g + c, n, w, &rows.first_moment(id, c),
                          &rows.second_moment(id, c));
            } else {
              table.descend(keep, size, g + c, n, w);
            }
          };
          with_weights(weights, rows.keys, cpu.simd, id, number, step);
        }
      });
}

}  // namespace

void update_rows(Cpu cpu, RowOptimiser optimiser, const TableRows& rows,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale) {
  if (scale != nullptr && scale->finite == 0) return;
  const auto update = [&](auto weights) {
    update_weights(cpu, optimiser, rows, weights, ids, gradient, settings, scale);
  };
  if (rows.in_f32()) {
    update(rows.weight);
  } else {
    rows.with_rounded(update);
  }
}

template <class T>
void update_rows(Cpu cpu, RowOptimiser optimiser, const TableRows& rows,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale, const RowCopies<T>& copies,
                 const RowPart& part) {
  const bool all = part.which.data == nullptr;
  if (all) update_rows(cpu, optimiser, rows, ids, gradient, settings, scale);
  const std::int64_t count = all ? ids.shape[0] : part.which.shape[0];
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t i = all ? k : part.which(k);
    if (!all) {
      update_rows(cpu, optimiser, rows, {&ids(i), {1}},
                  Rows<const float>(gradient.row(i), 1, gradient.cols, gradient.stride), settings,
                  scale);
    }
    const std::int64_t place = copies.places(i);
    if (place < 0) continue;
    for (std::int64_t c = 0; c < gradient.cols; ++c) {
      copies.rows(place, c) = convert<T>(rows.weight(ids(i), c));
    }
  }
}

template void update_rows<float>(Cpu, RowOptimiser, const TableRows&, View<const std::int64_t, 1>,
                                 Rows<const float>, const AdamWSettings&, const StepScale*,
                                 const RowCopies<float>&, const RowPart&);
template void update_rows<bf16>(Cpu, RowOptimiser, const TableRows&, View<const std::int64_t, 1>,
                                Rows<const float>, const AdamWSettings&, const StepScale*,
                                const RowCopies<bf16>&, const RowPart&);

}  // namespace turbogr::ops::kernels
