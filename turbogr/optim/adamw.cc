#include "turbogr/optim/adamw.h"

#include <algorithm>

#include "turbogr/core/workspace.h"
#include "turbogr/ops/adamw_coefficients.h"
#include "turbogr/ops/update_simd.h"

namespace turbogr::optim {
namespace {

constexpr std::int64_t kPiece = 1 << 15;

std::int64_t pieces_of(const AdamWSlice& slice) { return (slice.count + kPiece - 1) / kPiece; }

// Calls body(slice, begin, count, piece) for every piece of every slice, over all threads.
template <class Body>
void over_pieces(const Context& ctx, std::span<const AdamWSlice> slices, Body&& body) {
  std::int64_t first = 0;
  for (const AdamWSlice& slice : slices) {
    parallel_for(ctx.pool(), pieces_of(slice), [&](std::int64_t piece, int) {
      const std::int64_t begin = piece * kPiece;
      body(slice, begin, std::min(kPiece, slice.count - begin), first + piece);
    });
    first += pieces_of(slice);
  }
}

}  // namespace

void adamw(const Context& ctx, std::span<const AdamWSlice> slices, const AdamWOptions& options) {
  TGR_CHECK(options.step >= 1, "adamw: step is ", options.step, "; it counts from 1");
  const AdamWCoefficients k = adamw_coefficients(
      {options.rate, options.beta1, options.beta2, options.epsilon, options.decay,
       static_cast<double>(options.step), options.gradient_scale});
  const UpdateTable& table = update_table(ctx.simd());
  over_pieces(ctx, slices,
              [&](const AdamWSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t) {
                AdamWCoefficients own = k;
                own.decay *= static_cast<float>(slice.decay_factor);
                table.adamw(own, slice.gradient + begin, count, slice.weight + begin,
                            slice.first_moment + begin, slice.second_moment + begin);
              });
}

std::size_t squared_norm_workspace_bytes(std::span<const AdamWSlice> slices) {
  std::int64_t pieces = 0;
  for (const AdamWSlice& slice : slices) pieces += pieces_of(slice);
  return workspace_bytes_of<double>(pieces);
}

double squared_norm(const Context& ctx, std::span<const AdamWSlice> slices) {
  std::int64_t pieces = 0;
  for (const AdamWSlice& slice : slices) pieces += pieces_of(slice);
  WorkspaceScope scratch(ctx.workspace());
  const View<double, 1> sums = scratch.take<double>(pieces);
  const UpdateTable& table = update_table(ctx.simd());
  over_pieces(
      ctx, slices,
      [&](const AdamWSlice& slice, std::int64_t begin, std::int64_t count, std::int64_t piece) {
        sums(piece) = table.squared_sum(slice.gradient + begin, count);
      });
  double total = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) total += sums(piece);
  return total;
}

}  // namespace turbogr::optim
