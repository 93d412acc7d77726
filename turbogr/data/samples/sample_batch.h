// One rank's share of a step of the ranking task: samples end to end, no padding, the ids of every
// feature and the labels of the targets.
//
// B samples, c prefix features, N tokens, N - B c events (history and targets), F item features, M
// targets, K tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "turbogr/data/samples/label_weight.h"
#include "turbogr/data/samples/sample_features.h"
#include "turbogr/data/samples/samples.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

// Of one feature, sample by sample or event by event.
struct SampleIds {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets;  // of bags; empty where there is one id each
  std::vector<float> weights;         // of numbers with a scale, what each row counts; else empty
};

// Buffers keep their memory from batch to batch.
struct SampleBatch {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // since the epoch's start, or since the position restored

  std::vector<std::int64_t> offsets;       // [B + 1] of tokens
  std::vector<std::int64_t> num_targets;   // [B]
  std::vector<std::int64_t> times;         // [N - B c] in seconds; zeros without times
  std::vector<std::uint32_t> actions;      // [N - B c] bits; a target's are 0
  std::vector<std::uint64_t> row_keys;     // [N] sample << kPositionBits | position, for dropout
  std::vector<SampleIds> prefix, items;    // [c], [F]
  std::vector<float> labels, weights;      // [M, K]; weight 0: no label
  std::vector<float> bases;                // [M, K] what logits start from; empty: 0
  std::vector<std::int64_t> users;         // [B]
  std::vector<std::int64_t> target_users;  // [M]

  // Of one sample, on its way: its events in the store, their items and signals.
  std::vector<std::int64_t> events, event_items;
  std::vector<std::uint32_t> event_signals;

  std::int64_t num_samples() const { return static_cast<std::int64_t>(users.size()); }
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(row_keys.size()); }
  std::int64_t count_targets() const { return static_cast<std::int64_t>(target_users.size()); }
};

// What a target is labelled with: whether it has any of some signals, or a number; and how much
// that counts.
struct SampleTask {
  std::string name;
  std::uint32_t signals = 0;  // the mask
  std::string number;         // not empty: this column of numbers instead
  LabelWeight weight = {};
  std::vector<std::shared_ptr<const PastRates>> base = {};  // its logit starts from their sum

  bool is_number() const { return !number.empty(); }
};

struct SampleLayout {
  std::vector<SampleFeature> prefix, items;  // of the items the id comes first
  std::vector<SampleTask> tasks;
  std::vector<int> action_bits;  // bits of the store's signals that become bits 0, 1, ...
};

// Targets to be judged that are in no log: items at a time, for a user of the store or an unknown
// one (-1).
struct SampleRequest {
  std::int64_t user = -1;
  std::int64_t seconds = 0;  // when; also what comes after is no history
  bool has_time = false;     // false: after the user's last event
  std::vector<std::int64_t> items;
  std::vector<EventValue> values = {};  // what is known of the event: where it is shown, ...
};

// Fills batches from a store's mapped columns. One may serve several threads.
class SampleCollator {
 public:
  // All outlive it.
  SampleCollator(const Store& store, const SampleOptions& options, const SampleLayout& layout);

  // Room for batches of this size, so that filling them allocates nothing but for larger bags than
  // before.
  void reserve(SampleBatch& batch, std::int64_t samples, std::int64_t tokens) const;
  void collate(const Samples& samples, std::span<const std::uint32_t> indices,
               SampleBatch& batch) const;
  // The same of requests: labels and weights are zeros.
  void collate(std::span<const SampleRequest> requests, SampleBatch& batch) const;

 private:
  void clear(SampleBatch& batch) const;
  // Adds a sample's events: its history, up to an event of the store, then the targets [first,
  // first + targets).
  void add_events(std::int64_t user, std::int64_t history_end, std::int64_t first,
                  std::int64_t targets, SampleBatch& batch) const;
  void read_events(SampleBatch& batch) const;  // items and signals of batch.events
  void add_label(const EventPlace& target, std::uint32_t signals, SampleBatch& batch) const;
  // After the sample's events: its prefix by the first target, its tokens.
  void end_sample(const EventPlace& first_target, std::int64_t targets, std::uint64_t key,
                  SampleBatch& batch) const;
  std::int64_t seconds_of(std::int64_t event) const;
  std::uint32_t actions_of(std::uint32_t signals) const;

  const Store& store_;
  const SampleLayout& layout_;
  SampleHistory history_;
  std::vector<std::span<const float>> numbers_;  // of each task; empty of those with signals
  std::span<const std::int64_t> times_;
  std::int64_t second_ = 1;
  bool targets_at_last_time_;
  bool has_bases_;  // some task has
};

}  // namespace turbogr::data
