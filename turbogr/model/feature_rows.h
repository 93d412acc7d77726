// Which rows of which tables the features of a ranking model read, how they are pooled to what the
// model computes with, and how gradients come back to one row a distinct id. Features may share a
// table: a row's gradient is the sum over all its uses by all of them.
//
//   feature_rows.read(ctx, batch);                        // the distinct ids of each table
//   ... rows of ids(0), ids(1), ... end to end ...
//   feature_rows.pool<float>(ctx, rows, slots);           // model rows: split(slots)
//   ... forward and backward ...
//   feature_rows.sum_gradients<float>(ctx, dslots, drows);
//
// A slot is a feature of a sequence or of an event: those of sequences first, each with its
// features side by side. Pooling is a sparse matrix times rows, and the way back is its transpose:
// sums depend on the batch alone, not on the number of threads. The host finds the rows; where the
// context is a GPU's, it reads the lists there.
//
// U distinct ids of all tables, S slots, E width; the other letters as in ranking_batch.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/feed.h"
#include "turbogr/core/planned_bytes.h"
#include "turbogr/core/view.h"
#include "turbogr/model/ranking_batch.h"
#include "turbogr/model/ranking_model.h"
#include "turbogr/ops/rows/weighted_rows.h"

namespace turbogr::model {

enum class Pooling : std::uint8_t {
  kOne,  // always one id
  kSum,  // a bag: of its rows, an id that is there twice counting twice; zeros of an empty one
  kMean
};

struct Feature {
  std::string name;
  std::size_t table = 0;
  Pooling pooling = Pooling::kOne;
  std::int64_t most_ids = 1;      // of a bag: its first ones are read
  std::int64_t least_events = 0;  // prefix features: of a sequence with fewer events, history and
                                  // targets together, the row is zeros
};

struct RankingFeatures {
  std::vector<std::int64_t> table_rows;  // of each table
  std::vector<Feature> prefix, items;
};

class FeatureRows {
 public:
  // For batches of at most so many sequences and events; reading one allocates nothing.
  FeatureRows(const Context& ctx, RankingFeatures features, std::int64_t sequences,
              std::int64_t events);

  // The ids of a batch. One outside of its table reads and trains row 0, and is counted.
  void read(const Context& ctx, const RankingBatch& batch);
  std::int64_t out_of_range() const { return out_of_range_; }

  const RankingFeatures& features() const { return features_; }
  std::size_t num_tables() const { return features_.table_rows.size(); }
  View<const std::int64_t, 1> ids(std::size_t table) const;  // distinct, ascending
  std::int64_t first_row(std::size_t table) const { return first_row_[table]; }
  std::int64_t num_rows() const { return first_row_.back(); }  // U
  std::int64_t num_slots() const { return num_prefix_slots_ + num_item_slots_; }
  // Of the largest batch.
  std::int64_t most_ids(std::size_t table) const { return most_ids_[table]; }
  std::int64_t most_rows() const;
  std::int64_t most_slots() const { return most_slots_; }

  // slots(s) = the pooled rows of slot s.
  //   rows [U, E], table by table in the order of ids    slots [S, E]
  template <class T>  // float or bf16
  void pool(const Context& ctx, Rows<const T> rows, Rows<T> slots) const;
  // drows(u) = the sum of the gradients of all uses of u. Overwrites.
  template <class T>
  void sum_gradients(const Context& ctx, Rows<const T> dslots, Rows<float> drows) const;
  // Slots as the model wants them; they must lie close together.
  template <class T>
  RankingRows<T> split(Rows<T> slots) const;

  // Of pool and sum_gradients, for rows of so many columns.
  std::size_t workspace_bytes(const Context& ctx, std::int64_t width) const;
  PlannedBytes bytes() const;

 private:
  struct Bag {
    const std::int64_t* ids;
    std::int64_t count;
  };
  void check_batch(const Context& ctx, const RankingBatch& batch) const;
  Bag bag_of(const RankingBatch& batch, std::int64_t slot) const;
  const Feature& feature_of(std::int64_t slot) const;
  void find_uses(const Context& ctx, const RankingBatch& batch);
  void find_rows(const Context& ctx);
  void send_lists(const Context& ctx);

  RankingFeatures features_;
  std::vector<std::int64_t>
      table_start_;  // [tables + 1]: tables end to end give every row a number
  std::vector<std::int64_t> most_ids_;
  std::int64_t most_sequences_, most_events_, most_slots_ = 0, most_uses_ = 0;

  std::int64_t num_prefix_slots_ = 0, num_item_slots_ = 0, out_of_range_ = 0;
  std::vector<std::int64_t> first_row_;  // [tables + 1], among the distinct
  std::vector<std::int64_t> ids_;        // [U]
  // Uses in the order of slots, and the same in the order of rows.
  std::vector<std::int64_t> slot_offsets_, numbers_, row_offsets_;
  std::vector<std::int32_t> rows_, slots_, positions_, slots_by_row_;
  std::vector<float> weights_, weights_by_row_;
  // The same lists where the device reads them.
  Feed feed_;
  ops::RowPicks picks_of_slots_, picks_of_rows_;
};

}  // namespace turbogr::model
