#include "turbogr/ops/rows/update.h"

#include <cstring>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/update_kernels.h"

namespace turbogr::ops {
namespace {

std::int64_t pieces_of(std::int64_t count) {
  return (count + UpdateSlices::kPiece - 1) / UpdateSlices::kPiece;
}

// A tensor of the context's device with these bytes.
template <class Item>
Tensor table_of(const Context& ctx, const std::vector<Item>& items) {
  const auto bytes = static_cast<std::int64_t>(items.size() * sizeof(Item));
  Tensor host(DType::kU8, {bytes});
  if (bytes > 0) std::memcpy(host.data(), items.data(), static_cast<std::size_t>(bytes));
  if (ctx.device() == Device::kCpu) return host;
  Tensor table(DType::kU8, {bytes}, ctx.device());
  copy_tensor(ctx, table, host);
  return table;
}

}  // namespace

UpdateSlices::UpdateSlices(const Context& ctx, std::vector<UpdateSlice> slices)
    : slices_(std::move(slices)) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    for (std::int64_t begin = 0; begin < slices_[i].count; begin += kPiece) {
      pieces.push_back({static_cast<std::int64_t>(i), begin});
    }
  }
  num_pieces_ = static_cast<std::int64_t>(pieces.size());
  table_ = table_of(ctx, slices_);
  pieces_ = table_of(ctx, pieces);
}

const UpdateSlice* UpdateSlices::device_slices() const {
  return reinterpret_cast<const UpdateSlice*>(table_.data());
}
const UpdateSlices::Piece* UpdateSlices::device_pieces() const {
  return reinterpret_cast<const Piece*>(pieces_.data());
}

void zero_gradients(const Context& ctx, const UpdateSlices& slices) {
  on_device(ctx, [&](auto device) { kernels::zero_gradients(device, slices); });
}

void squared_sum(const Context& ctx, const UpdateSlices& slices, double* sum) {
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::squared_sum(device, slices, sum); });
}

void squared_sum(const Context& ctx, View<const float, 1> values, double* sum) {
  check_vector("squared_sum", "values", values, values.shape[0]);
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::squared_sum(device, values, sum); });
}

std::size_t squared_sum_workspace_bytes(const Context&, const UpdateSlices& slices) {
  return workspace_bytes_of<double>(slices.num_pieces());
}
std::size_t squared_sum_workspace_bytes(const Context&, std::int64_t count) {
  return workspace_bytes_of<double>(pieces_of(count));
}

void make_step_scale(const Context& ctx, View<const double, 1> squares,
                     View<const double, 1> losses, const StepScaleOptions& options,
                     StepScale* scale) {
  check_vector("make_step_scale", "squares", squares, squares.shape[0]);
  check_vector("make_step_scale", "losses", losses, losses.shape[0]);
  TGR_CHECK(scale != nullptr, "make_step_scale: no memory for the result; give it a StepScale");
  on_device(
      ctx, [&](auto device) { kernels::make_step_scale(device, squares, losses, options, scale); });
}

void scale_value(const Context& ctx, double factor, double* value) {
  on_device(ctx, [&](auto device) { kernels::scale_value(device, factor, value); });
}

void adamw(const Context& ctx, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale) {
  TGR_CHECK(settings.step >= 1, "adamw: step is ", settings.step, "; it counts from 1");
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::adamw(device, slices, settings, scale); });
}

namespace {

void check_update(const TableRows& table, View<const std::int64_t, 1> ids,
                  Rows<const float> gradient, const AdamWSettings& settings) {
  std::int64_t width = table.weight.shape[1];
  if (!table.in_f32()) table.with_rounded([&](auto weights) { width = weights.shape[1]; });
  TGR_CHECK(gradient.rows == ids.shape[0] && gradient.cols == width,
            "item table update: gradient is [", gradient.rows, ", ", gradient.cols, "]; wanted [",
            ids.shape[0], ", ", width, "]");
  TGR_CHECK(settings.step >= 1, "item table update: step is ", settings.step, "; it counts from 1");
}

}  // namespace

void update_rows(const Context& ctx, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale) {
  check_update(table, ids, gradient, settings);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    kernels::update_rows(device, optimiser, table, ids, gradient, settings, scale);
  });
}

template <class T>
void update_rows(const Context& ctx, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale, const RowCopies<T>& copies,
                 const RowPart& part) {
  check_update(table, ids, gradient, settings);
  TGR_CHECK(table.in_f32(), "item table update: copies are made of a table in f32 only");
  check_vector("item table update", "places", copies.places, ids.shape[0]);
  check_rows("item table update", "copies", copies.rows, copies.rows.rows, gradient.cols);
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    kernels::update_rows<T>(device, optimiser, table, ids, gradient, settings, scale, copies, part);
  });
}

template void update_rows<float>(const Context&, RowOptimiser, const TableRows&,
                                 View<const std::int64_t, 1>, Rows<const float>,
                                 const AdamWSettings&, const StepScale*, const RowCopies<float>&,
                                 const RowPart&);
template void update_rows<bf16>(const Context&, RowOptimiser, const TableRows&,
                                View<const std::int64_t, 1>, Rows<const float>,
                                const AdamWSettings&, const StepScale*, const RowCopies<bf16>&,
                                const RowPart&);

}  // namespace turbogr::ops
