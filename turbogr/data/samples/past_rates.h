// How often a signal came before: of every event the share of positives among the earlier events of
// the same item (user, author, tab, ...), as log-odds above the share among all earlier events.
//
//   const EventOrder order(store, Holdout("time:1651766400000"), 8, /*before_split=*/true);
//   const PastRates likes(store, order, {.keys = {parse_source(store, "item")}, .signals = 2});
//   likes.of(1000);                                  // of event 1000 of the store
//   likes.at({.item = 17, .before = 1651766400});    // of one that has not happened
//
// With s of n earlier events positive and a share m of all earlier events: the log-odds of
// (s + prior m) / (n + prior), less those of m. NaN: no such event came before.
//
// What an event may know: earlier events, of all users, those of its own time left out. Of these an
// event that trains knows those that train; one for validation also those for validation; one of
// the test all. With before_split an event kept back knows only what is of the splits before its
// own and came before its user's first event of the split.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "turbogr/data/holdout.h"
#include "turbogr/data/samples/sample_features.h"
#include "turbogr/data/store.h"

namespace turbogr::data {

// Events of a store by time, and what each may know: made once for any number of rates.
struct EventOrder {
  // targets: of holdouts that keep so many events of a user back. Throws on a store without times.
  EventOrder(const Store& store, const Holdout& holdout, std::int64_t targets, bool before_split);

  std::vector<std::int64_t> events;       // oldest first
  std::vector<std::int64_t> known_until;  // [E] only what is before this time, in the store's unit
  std::vector<Split> split;               // [E]
  bool before_split;
};

struct PastRateOptions {
  std::vector<FeatureSource>
      keys;                   // one code each: events with the same codes are counted together
  std::uint32_t signals = 0;  // any of them is a positive
  double prior = 20;          // events at the share of all, beside those that came
  std::int64_t delay = 0;     // seconds until an event is known
};

class PastRates {
 public:
  // The store outlives it, the order need not.
  PastRates(const Store& store, const EventOrder& order, const PastRateOptions& options);

  float of(std::int64_t event) const { return values_[static_cast<std::size_t>(event)]; }
  // Of a place without an event: by all events of the store before place.before. Another time than
  // the last one asked for reads the store. Threads may call it together.
  float at(const EventPlace& place) const;

 private:
  struct Count {
    std::int64_t events = 0, positives = 0;
  };
  struct Counts {
    std::vector<Count> of_code;  // [codes + 1]
    Count all;
    explicit Counts(std::int64_t codes = 0) : of_code(static_cast<std::size_t>(codes + 1)) {}
    void add(std::int64_t code, bool positive);
  };
  struct Mark {  // of an event
    std::int64_t code = 0;
    bool positive = false;
  };
  std::int64_t seconds_of(std::int64_t time) const;
  std::uint64_t packed(const EventPlace& place) const;  // of several keys; 0: one is unknown
  std::int64_t code_of(const EventPlace& place) const;
  // body(place, positive) for every event of the store.
  template <class Body>
  void for_events(const Body& body) const;
  void number_pairs();
  void fill(const EventOrder& order, Split split, const std::vector<Mark>& marks);
  float rate(const Counts& counts, std::int64_t code) const;

  const Store& store_;
  PastRateOptions options_;
  std::int64_t second_;  // in the store's unit
  std::int64_t codes_ = 0;
  std::unordered_map<std::uint64_t, std::int64_t> pairs_;  // of several keys: what came together
  std::vector<float> values_;                              // [E]

  mutable std::mutex mutex_;
  mutable std::int64_t counted_before_ = std::numeric_limits<std::int64_t>::min();
  mutable Counts counted_;  // of events before that
};

// Of an event of the store or one that has not happened.
inline float rate_of(const PastRates& rates, const EventPlace& place) {
  return place.event < 0 ? rates.at(place) : rates.of(place.event);
}

}  // namespace turbogr::data
