// What the retrieval task knows of items, events and users besides ids: features, each of them a
// row of a table (or the sum or mean of a bag's rows). A token is the sum of its item's row and all
// its features; tokens of the user's features stand before the history, which sees them (they see
// each other, the later the earlier).
//
//   token = item row + item features + event features
//   candidate = item row (output "id"), or item row + item features (output "item")
//
// With output "item" an item that was never trained is found by its features.
//
//   const FeatureSize size = {.items = true, .most_items = 1000, ...};
//   FeatureInputs inputs(features, size);
//   model::FeatureRows rows(ctx, features.table_rows(), feature_lists(features, size));
//   inputs.clear(); inputs.set_items(ids); inputs.add_batch(batch);
//   rows.read(ctx, inputs.places());
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/view.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/samples/sample_batch.h"
#include "turbogr/data/samples/sample_features.h"
#include "turbogr/embedding/row_source.h"
#include "turbogr/model/feature_rows.h"

namespace turbogr::eval {

struct RetrievalFeature {
  data::SampleFeature reads;
  model::Feature rows;  // its table counts from 0, the item table aside
};

struct RetrievalFeatures {
  std::vector<embedding::TableOptions> tables;   // beside the item table
  std::vector<std::string> table_names;          // for checkpoints
  std::vector<RetrievalFeature> items;           // of the item alone
  std::vector<RetrievalFeature> events, prefix;  // of the event, of the user
  bool item_output = false;                      // candidates are items with their features
  std::int64_t second = 1;                       // what a batch's times count a second as

  bool empty() const { return tables.empty(); }
  bool encodes_items() const { return item_output && !items.empty(); }
  std::int64_t num_prefix() const { return std::ssize(prefix); }  // tokens before a history
  std::vector<std::int64_t> table_rows() const;
};

// What is read at a time.
struct FeatureSize {
  bool items = false;  // items by themselves; else their features are the events'
  std::int64_t most_items = 0;
  std::int64_t batches = 0;
  std::int64_t most_tokens = 0, most_sequences = 0;  // of a batch
};

// For FeatureRows: items, then events and sequences of each batch. Items and events are summed.
std::vector<model::FeatureList> feature_lists(const RetrievalFeatures& features,
                                              const FeatureSize& size);

// The ids of features, read from the store's columns, list by list.
class FeatureInputs {
 public:
  // The features outlive it.
  FeatureInputs(const RetrievalFeatures& features, const FeatureSize& size);

  static std::size_t events_list(std::size_t batch) { return 1 + 2 * batch; }
  static std::size_t prefix_list(std::size_t batch) { return 2 + 2 * batch; }

  void clear();
  void set_items(View<const std::int64_t, 1> ids);
  void add_batch(const data::Batch& batch);
  std::span<const model::FeaturePlaces> places();
  std::size_t bytes() const;

 private:
  struct List {
    std::vector<const data::SampleFeature*> reads;
    std::vector<data::SampleIds> ids;
    std::vector<model::FeatureIds> views;
    std::int64_t count = 0;
  };
  static void clear(List& list);
  static void add_place(const data::EventPlace& place, List& list);

  std::int64_t second_;
  bool items_;
  std::vector<List> read_;
  std::vector<model::FeaturePlaces> places_;
  std::size_t batches_read_ = 0;
};

// Where the tokens of a batch are once each sequence begins with c prefix tokens: N events and B c
// prefix tokens, as slots [events | prefix], and N + B c tokens in the order of sequences.
struct PrefixOrder {
  // [N + B c]: the slot of each token.
  static void slots_of_tokens(Offsets offsets, std::int64_t prefix, View<std::int64_t, 1> slots);
  // [N + B c]: the token of each slot, so the first N are those of the events.
  static void tokens_of_slots(Offsets offsets, std::int64_t prefix, View<std::int64_t, 1> tokens);
};

}  // namespace turbogr::eval
