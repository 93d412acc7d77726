// Whose batches a plan is made of: windows of users and the items in them, from a store, from a
// made-up world, or from a table of lengths.
//
//   const auto histories = open_histories("kuairand27k", {.max_length = 2048, .users = 30000});
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "turbogr/data/store.h"
#include "turbogr/data/windows.h"
#include "turbogr/run/config.h"

namespace turbogr::plan {

class Histories {
 public:
  virtual ~Histories() = default;

  std::span<const data::Window> windows() const { return windows_; }  // of an epoch
  double epoch_tokens() const;
  std::int64_t num_items() const { return num_items_; }
  std::int64_t num_users() const { return num_users_; }
  const std::string& text() const { return text_; }  // for tables: what they are
  // The items of a window's n inputs and of its last target: n + 1 of them. From any thread.
  virtual void read(const data::Window& window, std::span<std::int64_t> items) const = 0;
  // Whose they are, with features and times; null: made up.
  virtual const data::Store* store() const { return nullptr; }

 protected:
  std::vector<data::Window> windows_;
  std::int64_t num_items_ = 0, num_users_ = 0;
  std::string text_;
};

struct HistoryOptions {
  const run::Config& config;  // its windows and hold-out
  double least_tokens = 0;    // of all windows: made-up worlds have users enough for so many
};

// `data`: a store's folder, the name of a made-up world (kuairand27k, movielens, yambda), or a CSV
// file of lengths (a header line or none, the length in the first column) whose items are drawn by
// KuaiRand's popularity. Throws on anything else.
std::unique_ptr<Histories> open_histories(const std::string& data, const HistoryOptions& options);

}  // namespace turbogr::plan
