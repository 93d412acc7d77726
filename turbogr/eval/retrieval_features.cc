#include "turbogr/eval/retrieval_features.h"

#include <algorithm>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::eval {

std::vector<std::int64_t> RetrievalFeatures::table_rows() const {
  std::vector<std::int64_t> rows;
  for (const embedding::TableOptions& table : tables) rows.push_back(table.rows);
  return rows;
}

namespace {

struct PlannedList {
  std::vector<const RetrievalFeature*> features;
  std::int64_t most = 0;
  bool summed = false;
};

std::vector<const RetrievalFeature*> pointers_to(const std::vector<RetrievalFeature>& features) {
  std::vector<const RetrievalFeature*> all;
  all.reserve(features.size());
  for (const RetrievalFeature& feature : features) all.push_back(&feature);
  return all;
}

std::vector<PlannedList> plan_lists(const RetrievalFeatures& features, const FeatureSize& size) {
  std::vector<const RetrievalFeature*> items = pointers_to(features.items), events;
  if (!size.items) std::swap(items, events);
  const auto of_events = pointers_to(features.events);
  events.insert(events.end(), of_events.begin(), of_events.end());
  std::vector<PlannedList> lists = {{items, size.items ? size.most_items : 0, true}};
  const std::int64_t sequences = features.prefix.empty() ? 0 : size.most_sequences;
  for (std::int64_t batch = 0; batch < size.batches; ++batch) {
    lists.push_back({events, size.most_tokens, true});
    lists.push_back({pointers_to(features.prefix), sequences, false});
  }
  return lists;
}

}  // namespace

std::vector<model::FeatureList> feature_lists(const RetrievalFeatures& features,
                                              const FeatureSize& size) {
  std::vector<model::FeatureList> lists;
  for (const PlannedList& planned : plan_lists(features, size)) {
    model::FeatureList& list = lists.emplace_back();
    list.most_places = planned.most;
    list.summed = planned.summed;
    for (const RetrievalFeature* feature : planned.features) list.features.push_back(feature->rows);
  }
  return lists;
}

FeatureInputs::FeatureInputs(const RetrievalFeatures& features, const FeatureSize& size)
    : second_(features.second), items_(size.items) {
  for (const PlannedList& planned : plan_lists(features, size)) {
    List& list = read_.emplace_back();
    list.ids.resize(planned.features.size());
    list.views.resize(planned.features.size());
    for (std::size_t f = 0; f < planned.features.size(); ++f) {
      const RetrievalFeature& feature = *planned.features[f];
      list.reads.push_back(&feature.reads);
      list.ids[f].ids.reserve(static_cast<std::size_t>(planned.most * feature.rows.most_ids));
      if (!feature.reads.is_bag()) continue;
      list.ids[f].offsets.reserve(static_cast<std::size_t>(planned.most) + 1);
    }
  }
  places_.resize(read_.size());
  clear();
}

void FeatureInputs::clear(List& list) {
  list.count = 0;
  for (std::size_t f = 0; f < list.reads.size(); ++f) {
    list.ids[f].ids.clear();
    list.ids[f].offsets.clear();
    if (list.reads[f]->is_bag()) list.ids[f].offsets.push_back(0);
  }
}

void FeatureInputs::clear() {
  for (List& list : read_) clear(list);
  batches_read_ = 0;
}

void FeatureInputs::add_place(const data::EventPlace& place, List& list) {
  ++list.count;
  for (std::size_t f = 0; f < list.reads.size(); ++f) {
    data::read_ids(*list.reads[f], place, list.ids[f].ids);
    if (list.reads[f]->is_bag()) list.ids[f].offsets.push_back(std::ssize(list.ids[f].ids));
  }
}

void FeatureInputs::set_items(View<const std::int64_t, 1> ids) {
  clear(read_[0]);
  if (!items_) return;
  for (std::int64_t i = 0; i < ids.shape[0]; ++i) add_place({.item = ids(i)}, read_[0]);
}

void FeatureInputs::add_batch(const data::Batch& batch) {
  TGR_ASSERT(prefix_list(batches_read_) < read_.size());
  List& events = read_[events_list(batches_read_)];
  List& prefix = read_[prefix_list(batches_read_)];
  ++batches_read_;
  for (std::size_t b = 0; b < batch.users.size(); ++b) {
    data::EventPlace place = {.user = batch.users[b]};
    if (!prefix.reads.empty()) add_place(place, prefix);
    const std::int64_t first = batch.first_events.empty() ? -1 : batch.first_events[b];
    for (std::int64_t i = batch.offsets[b]; i < batch.offsets[b + 1]; ++i) {
      const auto token = static_cast<std::size_t>(i);
      place.item = batch.items[token];
      place.event = first < 0 ? -1 : first + i - batch.offsets[b];
      if (!batch.key_times.empty()) {
        const std::int64_t time = batch.key_times[token];
        place.seconds = time / second_ - (time % second_ < 0 ? 1 : 0);
      }
      add_place(place, events);
    }
  }
}

std::span<const model::FeaturePlaces> FeatureInputs::places() {
  for (std::size_t l = 0; l < read_.size(); ++l) {
    List& list = read_[l];
    for (std::size_t f = 0; f < list.ids.size(); ++f) {
      list.views[f] = {data::view_of(list.ids[f].ids), data::view_of(list.ids[f].offsets)};
    }
    const bool prefix = l > 0 && l % 2 == 0;
    places_[l] = {list.count, list.views, nullptr,
                  l == 0   ? "items"
                  : prefix ? "sequences"
                           : "events"};
  }
  return places_;
}

std::size_t FeatureInputs::bytes() const {
  std::size_t bytes = 0;
  for (const List& list : read_) {
    for (const data::SampleIds& ids : list.ids) {
      bytes += (ids.ids.capacity() + ids.offsets.capacity()) * sizeof(std::int64_t);
    }
  }
  return bytes;
}

void PrefixOrder::slots_of_tokens(Offsets offsets, std::int64_t prefix,
                                  View<std::int64_t, 1> slots) {
  const std::int64_t batch = offsets.shape[0] - 1, events = offsets(batch);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t f = 0; f < prefix; ++f) slots(token++) = events + b * prefix + f;
    for (std::int64_t i = offsets(b); i < offsets(b + 1); ++i) slots(token++) = i;
  }
}

void PrefixOrder::tokens_of_slots(Offsets offsets, std::int64_t prefix,
                                  View<std::int64_t, 1> tokens) {
  const std::int64_t batch = offsets.shape[0] - 1, events = offsets(batch);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t f = 0; f < prefix; ++f) tokens(events + b * prefix + f) = token++;
    for (std::int64_t i = offsets(b); i < offsets(b + 1); ++i) tokens(i) = token++;
  }
}

}  // namespace turbogr::eval
