// Where a step's embedding rows come from and where their gradients go: all that training knows of
// tables. One source serves every table of a model; lists of ids, rows and gradients come one a
// table.
//
//   source.prepare(host, Lane::kThis, ids, request);                // which rows, and who has them
//   source.fetch(ctx, Lane::kThis, request, rows);                  // their values
//   ... forward, loss, backward ...
//   source.return_gradients(ctx, Lane::kThis, request, Part::kAll, gradients, squares);
//   source.update(ctx, request, Part::kAll, settings, scale);
//
// Kinds: local_rows.h (this device), host_rows.h (pinned host memory), sharded_rows.h (spread over
// ranks). Every call but update is collective over the ranks. Nothing waits for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "turbogr/core/context.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/view.h"
#include "turbogr/dist/communicator.h"
#include "turbogr/embedding/item_table.h"
#include "turbogr/embedding/sharding.h"
#include "turbogr/embedding/touched_rows.h"
#include "turbogr/ops/rows/half_rows.h"
#include "turbogr/ops/rows/update.h"

namespace turbogr::embedding {

// Work on the next step may run beside this one's, with communicators and a stream of its own.
enum class Lane : std::uint8_t { kThis, kNext };

// All of a step's gradients, or those of rows that the next step reads and then the rest.
enum class Part : std::uint8_t { kAll, kNextReads, kRest };

// What one step touches, on the host. It stays as it is until the step's rows are updated.
struct StepIds {
  std::int64_t step = 0;                // from 0
  std::span<const TouchedRows> tables;  // the ids of each
  // With repeats, of the first table: what the forward pass reads. The loss reads the others later.
  std::span<const View<const std::int64_t, 1>> inputs;
  std::int64_t predicting = 0, all_predicting = 0;  // tokens the loss counts: of this rank, of all
};

// A table's rows for a step, memory of the device: all U ids' in T, or only the first ones' (as
// TouchedRows numbers them) with all of them in f16 beside.
template <class T>
struct StepRows {
  Rows<T> rows;           // [U, D] or [num_first, D]
  ops::HalfRowsOut half;  // [U, D], or empty
};

// What a source keeps of one step on its way.
class RowRequest {
 public:
  virtual ~RowRequest() = default;
  virtual PlannedBytes bytes() const = 0;
};

template <class T>  // what the model computes in: float or bf16
class RowSource {
 public:
  virtual ~RowSource() = default;

  virtual void initialise(const Context& ctx) = 0;
  // For steps of at most so many ids of each table.
  virtual std::unique_ptr<RowRequest> make_request(const Context& ctx,
                                                   std::span<const std::int64_t> most) const = 0;

  // The host's part: settles which rows move where.
  virtual void prepare(const Context& ctx, Lane lane, const StepIds& ids, RowRequest& request) = 0;
  virtual void fetch(const Context& ctx, Lane lane, RowRequest& request,
                     std::span<const StepRows<T>> out) = 0;
  // Sums the gradients where their rows are. squares[t] becomes this rank's share of the sum of
  // table t's squares: added up over all ranks it is the whole. Gradients stay until the update.
  virtual void return_gradients(const Context& ctx, Lane lane, RowRequest& request, Part part,
                                std::span<const Rows<const float>> gradients, double* squares) = 0;
  // One settings a table; `scale` is read when the device gets there.
  virtual void update(const Context& ctx, Lane lane, RowRequest& request, Part part,
                      std::span<const AdamWSettings> settings, const ops::StepScale* scale) = 0;

  // Of rows that are fetched while an earlier step computes, whose update some of them miss: finds
  // out which these are, and with `split` which of the earlier step's gradients are in a hurry.
  // False where rows are at hand anyway and nothing is gained by fetching them ahead.
  virtual bool fetches_ahead() const { return false; }
  virtual void plan_refresh(const Context&, Lane, RowRequest& /*next*/, RowRequest& /*current*/,
                            bool /*split*/) {}
  // Brings what `next` missed, after the update.
  virtual void refresh(const Context&, Lane, RowRequest& /*next*/, std::span<const StepRows<T>>) {}

  // A source that updates late says here when the last step's gradients have been read, and hears
  // when this step's rows have been.
  virtual void await_gradients(const Context&) {}
  virtual void release_rows(const Context&) {}
  // No step is on its way: all updates are in the tables from here on.
  virtual void end_steps(const Context&) {}
  // Before tables are read as a whole: replicas that go their own way become their mean.
  // Collective.
  virtual void settle(const Context&) {}
  // After weights were loaded.
  virtual void refresh_copies(const Context&) {}

  // Outside of steps: out(i) = the row of ids(i), which are the host's and may repeat. Collective.
  virtual void gather(const Context& ctx, std::size_t table, View<const std::int64_t, 1> ids,
                      Rows<T> out) = 0;

  // This rank's part of a table, which part of how many it is, and where every id is.
  virtual ItemTable& shard(std::size_t table) = 0;
  virtual const Sharding& sharding(std::size_t table) const = 0;
  virtual int shard_index() const { return 0; }
  // The ranks whose parts make the whole, over hosts' and over devices' memory; null: this one has
  // all. Used by nobody else outside of steps.
  virtual dist::Communicator* group() { return nullptr; }
  virtual dist::Communicator* device_group() { return nullptr; }

  virtual PlannedBytes bytes() const = 0;  // tables and what serves all steps
  // Sent over the link to a host's memory since the beginning, and got back.
  struct LinkBytes {
    double to_device = 0, to_host = 0;
  };
  virtual LinkBytes link_bytes() const { return {}; }
};

// What a table is made of, whatever its kind.
struct TableOptions {
  std::int64_t rows = 0;
  std::int64_t width = 64;
  SparseOptimiser optimiser = SparseOptimiser::kAdamW;
  ops::RowStart start;
  std::uint64_t seed = 1;
  DType dtype = DType::kF32;  // or bf16, f16
  bool half_copy = false;     // an f16 copy of all rows beside the table, for f16 negatives
};

}  // namespace turbogr::embedding
