// Which rows of which tables a model's features read, how they are pooled to what the model
// computes with, and how gradients come back to one row a distinct id. Features may share a table:
// a row's gradient is the sum over all its uses by all of them.
//
//   feature_rows.read(ctx, batch);                        // the distinct ids of each table
//   ... rows of ids(0), ids(1), ... end to end ...
//   feature_rows.pool<float>(ctx, rows, slots);           // model rows: split(slots)
//   ... forward and backward ...
//   feature_rows.sum_gradients<float>(ctx, dslots, drows);
//
// Features come in lists, each read at places of its own: sequences, events, items. A slot is a
// feature at a place, a place's features side by side, or all features of a place summed: those of
// the first list, then of the next. A ranking batch has two lists, sequences' and events'. Pooling
// is a sparse matrix times rows, and the way back is its transpose: sums depend on the batch alone,
// not on the number of threads. The host finds the rows; where the context is a GPU's, it reads the
// lists there.
//
// U distinct ids of all tables, S slots, E width; the other letters as in ranking_batch.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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
  kSum,  // a bag: of its rows, each times its weight where the batch has weights, an id that is
         // there twice counting twice; zeros of an empty one
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

// Features that are read at the same places.
struct FeatureList {
  std::vector<Feature> features;
  std::int64_t most_places = 0;
  bool summed = false;  // one slot a place, of no features zeros; else one a feature
};

// Of each table, the most distinct ids that the largest batch reads.
std::vector<std::int64_t> most_feature_ids(const std::vector<std::int64_t>& table_rows,
                                           const std::vector<FeatureList>& lists);

// Where one list is read, and the ids there.
struct FeaturePlaces {
  std::int64_t count = 0;
  std::span<const FeatureIds> ids;                 // one a feature
  const ops::EventSequences* sequences = nullptr;  // for features that ask for least_events
  const char* whose = "places";                    // for messages
};

class FeatureRows {
 public:
  // For batches of at most so many places of each list; reading one allocates nothing.
  FeatureRows(const Context& ctx, std::vector<std::int64_t> table_rows,
              std::vector<FeatureList> lists);
  // The two lists of ranking batches.
  FeatureRows(const Context& ctx, const RankingFeatures& features, std::int64_t sequences,
              std::int64_t events);

  // Room in the workspace of another context's host that reads batches, too.
  void reserve(const Context& ctx) const;

  // The ids of a batch. One outside of its table reads and trains row 0, and is counted.
  void read(const Context& ctx, std::span<const FeaturePlaces> places);
  void read(const Context& ctx, const RankingBatch& batch);
  std::int64_t out_of_range() const { return out_of_range_; }

  std::size_t num_tables() const { return table_rows_.size(); }
  View<const std::int64_t, 1> ids(std::size_t table) const;  // distinct, ascending
  std::int64_t first_row(std::size_t table) const { return first_row_[table]; }
  std::int64_t num_rows() const { return first_row_.back(); }  // U
  // Table t's part of rows that lie table by table.
  template <class T>
  Rows<T> part_of(std::size_t table, Rows<T> all) const {
    return {all.row(first_row(table)), ids(table).shape[0], all.cols, all.stride};
  }
  std::int64_t num_slots() const { return first_slot_.back(); }
  std::int64_t first_slot(std::size_t list) const { return first_slot_[list]; }
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
  // Slots as a ranking model wants them; they must lie close together.
  template <class T>
  RankingRows<T> split(Rows<T> slots) const;

  // Of pool and sum_gradients, for rows of so many columns.
  std::size_t workspace_bytes(const Context& ctx, std::int64_t width) const;
  PlannedBytes bytes() const;

 private:
  struct Bag {
    const std::int64_t* ids;
    std::int64_t count;
    const float* weights;  // null: by the pooling
  };
  void check_places(std::span<const FeaturePlaces> places) const;
  // What a feature reads at a place: nothing, where the sequence is too short for it.
  static Bag bag_of(const Feature& feature, const FeaturePlaces& places, std::size_t index,
                    std::int64_t place);
  template <class Work>
  void for_each_cell(const Context& ctx, std::span<const FeaturePlaces> places,
                     const Work& work) const;
  void find_uses(const Context& ctx, std::span<const FeaturePlaces> places);
  void find_rows(const Context& ctx);
  void send_lists(const Context& ctx);

  std::vector<std::int64_t> table_rows_;
  std::vector<FeatureList> lists_;
  std::vector<std::int64_t>
      table_start_;  // [tables + 1]: tables end to end give every row a number
  std::vector<std::int64_t> most_ids_;
  std::int64_t most_cells_ = 0, most_slots_ = 0, most_uses_ = 0;

  std::vector<std::int64_t> first_cell_, first_slot_;  // [lists + 1]
  std::int64_t out_of_range_ = 0;
  std::vector<std::int64_t> first_row_;  // [tables + 1], among the distinct
  std::vector<std::int64_t> ids_;        // [U]
  // A cell is a feature at a place: where its uses begin.
  std::vector<std::int64_t> cell_offsets_;
  // Uses in the order of slots, and the same in the order of rows.
  std::vector<std::int64_t> slot_offsets_, numbers_, row_offsets_;
  std::vector<std::int32_t> rows_, slots_, positions_, slots_by_row_;
  std::vector<float> weights_, weights_by_row_;
  // The same lists where the device reads them.
  Feed feed_;
  ops::RowPicks picks_of_slots_, picks_of_rows_;
};

}  // namespace turbogr::model
