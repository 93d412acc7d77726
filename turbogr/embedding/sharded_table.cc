#include "turbogr/embedding/sharded_table.h"

#include <cmath>
#include <limits>

#include "turbogr/core/check.h"
#include "turbogr/core/row_pieces.h"
#include "turbogr/embedding/counts.h"
#include "turbogr/embedding/wire.h"
#include "turbogr/ops/rows/random_rows.h"

namespace turbogr::embedding {

ReplicaMode replica_mode_from_name(std::string_view name) {
  if (name == "exact") return ReplicaMode::kExact;
  TGR_CHECK(name == "average", "unknown replica mode '", name, "'; use exact or average");
  return ReplicaMode::kAverage;
}

namespace {

Sharding checked_sharding(const ShardedOptions& options, int shard, int shards) {
  TGR_CHECK(shard >= 0 && shard < shards, "shard ", shard, " of ", shards);
  for (const DType wire : {options.row_wire, options.gradient_wire}) {
    TGR_CHECK(wire == DType::kF32 || wire == DType::kBf16 || wire == DType::kF16,
              "rows cannot travel as ", name_of(wire), "; use f32, bf16 or f16");
  }
  TGR_CHECK(
      options.gradient_wire != DType::kF16,
      "gradients cannot travel as f16, which small ones would leave as zero; use f32 or bf16");
  const Sharding sharding(options.rows, shards, options.placement);
  TGR_CHECK(sharding.rows_of(shard) <= std::numeric_limits<std::uint32_t>::max(), "a shard of ",
            sharding.rows_of(shard), " rows; ", std::numeric_limits<std::uint32_t>::max(),
            " is the most: use more ranks a group");
  return sharding;
}

}  // namespace

ShardedTable::ShardedTable(const ShardedOptions& options, int shard, int shards)
    : options_(options),
      sharding_(checked_sharding(options, shard, shards)),
      shard_(shard),
      own_(sharding_.rows_of(shard), options.width, options.optimiser, options.device,
           options.dtype) {
  own_.set_keys(sharding_.keys_of(shard, options.seed));
}

void ShardedTable::initialise(const Context& ctx) {
  const auto width = static_cast<std::size_t>(options_.width);
  const std::size_t row_bytes = width * size_of(options_.dtype);
  for_each_piece(
      ctx, memory_of(own_.weight_tensor()), PieceUse::kWrite, [&](const RowPiece& piece) {
        parallel_ranges(ctx.host().pool(), piece.end - piece.begin, kRowsAtATime,
                        [&](std::int64_t begin, std::int64_t end, int) {
                          std::vector<float> values(width);
                          for (std::int64_t i = begin; i < end; ++i) {
                            ops::random_row(options_.seed, sharding_.id_of(shard_, piece.begin + i),
                                            options_.start, options_.width, values.data());
                            to_wire(options_.dtype, values.data(), options_.width,
                                    piece.data + static_cast<std::size_t>(i) * row_bytes);
                          }
                        });
      });
}

void ShardedTable::own_rows(std::vector<std::int64_t>& ids) const {
  for (std::int64_t& id : ids) id = sharding_.row_of(id);
}

void ShardedTable::check_group(const dist::Communicator& group) const {
  TGR_CHECK(group.size() == sharding_.shards() && group.rank() == shard_, "rank ", group.rank(),
            " of ", group.size(), " asks a table whose shard here is ", shard_, " of ",
            sharding_.shards());
}

void ShardedTable::update(const Context& ctx, View<const std::int64_t, 1> touched,
                          Rows<const float> gradients, const AdamWSettings& settings,
                          const ops::StepScale* scale, int num_replicas) {
  AdamWSettings own_settings = settings;
  if (options_.replicas == ReplicaMode::kAverage &&
      options_.optimiser == SparseOptimiser::kAdaGrad && num_replicas > 1) {
    // rate / sqrt(v / M + eps) = rate sqrt(M) / sqrt(v + M eps): a replica sees gradients whose
    // squares are M times as large as those of the mean over all.
    const double m = num_replicas;
    own_settings.rate *= std::sqrt(m);
    own_settings.decay /= std::sqrt(m);
    own_settings.epsilon *= m;
  }
  own_.update(ctx, touched, gradients, own_settings, scale);
}

void ShardedTable::average(const Context& ctx, const TableCommunicators& communicators) {
  if (communicators.num_replicas() == 1) return;
  const auto share = 1.0f / static_cast<float>(communicators.num_replicas());
  for (Tensor* tensor : {&own_.weight_tensor(), &own_.first_moment(), &own_.second_moment()}) {
    if (tensor->size() == 0) continue;           // not of this optimiser
    TGR_ASSERT(tensor->dtype() == DType::kF32);  // sharded_rows.cc has refused others
    const TableMemory memory = memory_of(*tensor);
    for_each_piece(ctx, memory, PieceUse::kUpdate, [&](const RowPiece& piece) {
      auto* values = reinterpret_cast<float*>(piece.data);
      const std::int64_t count = (piece.end - piece.begin) * memory.row_bytes / 4;
      communicators.replicas->all_reduce({values, count}, dist::Reduce::kSum);
      parallel_ranges(ctx.host().pool(), count, 1 << 15,
                      [&](std::int64_t begin, std::int64_t end, int) {
                        for (std::int64_t i = begin; i < end; ++i) values[i] *= share;
                      });
    });
  }
}

}  // namespace turbogr::embedding
