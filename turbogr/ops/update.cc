#include "turbogr/ops/update.h"

#include <cstring>
#include <utility>

#include "turbogr/core/device_memory.h"
#include "turbogr/ops/checks.h"
#include "turbogr/ops/update_kernels.h"

namespace turbogr::ops {
namespace {

void check_settings(const char* op, const AdamWSettings& settings) {
  TGR_CHECK(settings.step >= 1, op, ": step is ", settings.step, "; it counts from 1");
}

std::int64_t pieces_of(std::int64_t count) {
  return (count + UpdateSlices::kPiece - 1) / UpdateSlices::kPiece;
}

// Bytes on the context's device, made on the host.
Tensor device_copy(const Context& ctx, const void* data, std::size_t bytes) {
  Tensor host(DType::kU8, {static_cast<std::int64_t>(bytes)});
  if (bytes > 0) std::memcpy(host.data(), data, bytes);
  if (ctx.device() == Device::kCpu) return host;
  Tensor there(DType::kU8, host.shape(), ctx.device());
  copy_tensor(ctx, there, host);
  return there;
}

}  // namespace

UpdateSlices::UpdateSlices(const Context& ctx, std::vector<UpdateSlice> slices)
    : slices_(std::move(slices)) {
  std::vector<Piece> pieces;
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    for (std::int64_t begin = 0; begin < slices_[s].count; begin += kPiece) {
      pieces.push_back({static_cast<std::int64_t>(s), begin});
    }
  }
  num_pieces_ = std::ssize(pieces);
  table_ = device_copy(ctx, slices_.data(), slices_.size() * sizeof(UpdateSlice));
  pieces_ = device_copy(ctx, pieces.data(), pieces.size() * sizeof(Piece));
}

const UpdateSlice* UpdateSlices::device_slices() const {
  return reinterpret_cast<const UpdateSlice*>(table_.data());
}
const UpdateSlices::Piece* UpdateSlices::device_pieces() const {
  return reinterpret_cast<const Piece*>(pieces_.data());
}

void squared_sum(const Context& ctx, const UpdateSlices& slices, double* sum) {
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::squared_sum(device, slices, sum); });
}

void squared_sum(const Context& ctx, View<const float, 1> values, double* sum) {
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
  TGR_CHECK(options.clip >= 0, "make_step_scale: clip is ", options.clip,
            "; it must be above 0, or 0 for none");
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(
      ctx, [&](auto device) { kernels::make_step_scale(device, squares, losses, options, scale); });
}

void adamw(const Context& ctx, const UpdateSlices& slices, const AdamWSettings& settings,
           const StepScale* scale) {
  check_settings("adamw", settings);
  const SectionScope section = section_scope(ctx, Section::kOptimiser);
  on_device(ctx, [&](auto device) { kernels::adamw(device, slices, settings, scale); });
}

void update_rows(const Context& ctx, RowOptimiser optimiser, const TableRows& table,
                 View<const std::int64_t, 1> ids, Rows<const float> gradient,
                 const AdamWSettings& settings, const StepScale* scale) {
  constexpr const char* kOp = "update_rows";
  check_settings(kOp, settings);
  const std::int64_t rows = table.weight.shape[0];
  const std::int64_t width = table.weight.shape[1];
  check_rows(kOp, "gradient", gradient, ids.shape[0], width);
  const Rows<const float> first = table.first_moment, second = table.second_moment;
  if (optimiser == RowOptimiser::kAdamW) {
    check_rows(kOp, "the first moment", first, rows, width);
    check_rows(kOp, "the second moment", second, rows, width);
  } else if (optimiser == RowOptimiser::kAdaGrad) {
    check_rows(kOp, "the second moment", second, rows, 1);
  }
  const SectionScope section = section_scope(ctx, Section::kEmbedding);
  on_device(ctx, [&](auto device) {
    kernels::update_rows(device, optimiser, table, ids, gradient, settings, scale);
  });
}

}  // namespace turbogr::ops
