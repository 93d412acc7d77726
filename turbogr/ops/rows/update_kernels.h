// What a device fills in for update.h.
#pragma once

#include "turbogr/ops/rows/update.h"

namespace turbogr::ops::kernels {

void zero_gradients(Cpu cpu, const UpdateSlices& slices);
void zero_gradients(Cuda cuda, const UpdateSlices& slices);

// [P] partial sums, one a piece of kPiece values, then their sum.
void squared_sum(Cpu cpu, const UpdateSlices& slices, double* sum);
void squared_sum(Cuda cuda, const UpdateSlices& slices, double* sum);
void squared_sum(Cpu cpu, View<const float, 1> values, double* sum);
void squared_sum(Cuda cuda, View<const float, 1> values, double* sum);

void scale_value(Cpu cpu, double factor, double* value);
void scale_value(Cuda cuda, double factor, double* value);
void make_step_scale(Cpu cpu, View<const double, 1> squares, View<const double, 1> losses,
                     const StepScaleOptions& options, StepScale* scale);
void make_step_scale(Cuda cuda, View<const double, 1> squares, View<const double, 1> losses,
                     const StepScaleOptions& options, StepScale* scale);

void adamw(Cpu cpu, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale);
void adamw(Cuda cuda, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale);

void update_rows(Cpu cpu, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale);
void update_rows(Cuda cuda, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale);
template <class T>
void update_rows(Cpu cpu, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale, const RowCopies<T>& copies,
                 const RowPart& part);
template <class T>
void update_rows(Cuda cuda, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale, const RowCopies<T>& copies,
                 const RowPart& part);

}  // namespace turbogr::ops::kernels
