#include "turbogr/ops/rows/draw_negatives.h"

#include "turbogr/ops/checks.h"
#include "turbogr/ops/rows/draw_negatives_kernels.h"

namespace turbogr::ops {
namespace {

void check_draws(const char* op, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 std::int64_t tokens, std::int64_t count) {
  TGR_CHECK(row_keys.shape[0] == tokens, op, ": ", row_keys.shape[0], " row keys for ", tokens,
            " tokens");
  TGR_CHECK(key.step < (std::uint64_t{1} << 39), op, ": step ", key.step, "; at most 2^39 - 1");
  TGR_CHECK(count <= (std::int64_t{1} << 25), op, ": ", count, " negatives a token; at most 2^25");
}

}  // namespace

void draw_negatives(const Context& ctx, const NegativeSource& source, const NegativeKey& key,
                    View<const std::uint64_t, 1> row_keys, View<std::int64_t, 2> ids) {
  const char* op = "draw_negatives";
  TGR_CHECK(source.catalogue > 0, op, ": a catalogue of ", source.catalogue,
            " items; it needs 1 or more");
  TGR_CHECK(source.uniform >= 0 && source.popular >= 0 && source.in_batch >= 0, op, ": ",
            source.uniform, " uniform, ", source.popular, " popular and ", source.in_batch,
            " in-batch draws; none may be below 0");
  TGR_CHECK(ids.shape[1] == source.count(), op, ": room for ", ids.shape[1],
            " negatives a token for ", source.count(), " draws");
  check_draws(op, key, row_keys, ids.shape[0], ids.shape[1]);
  TGR_CHECK(source.popular == 0 || source.alias.shape[0] == source.catalogue, op,
            ": an alias table of ", source.alias.shape[0], " slots for ", source.catalogue,
            " items; give one of them all");
  TGR_CHECK(source.in_batch == 0 || source.candidates.shape[0] > 0 || ids.shape[0] == 0, op,
            ": in-batch draws from no candidates; give the batch's positives");
  if (ids.size() == 0) return;
  on_cpu(ctx, op, [&](Cpu cpu) { kernels::draw_negatives(cpu, source, key, row_keys, ids); });
}

void draw_places(const Context& ctx, const NegativeKey& key, View<const std::uint64_t, 1> row_keys,
                 View<const std::int32_t, 1> place_of, View<std::int32_t, 2> places) {
  const char* op = "draw_places";
  check_draws(op, key, row_keys, places.shape[0], places.shape[1]);
  TGR_CHECK(place_of.shape[0] > 0 || places.size() == 0, op,
            ": draws from no candidates; give the catalogue's places");
  if (places.size() == 0) return;
  on_device(ctx,
            [&](auto device) { kernels::draw_places(device, key, row_keys, place_of, places); });
}

}  // namespace turbogr::ops
