// The sequences a trained model is asked about, in batches that its planned memory holds.
//
//   for (std::int64_t first = 0; first < sequences.size();) {
//     const std::int64_t end = batch_end(sequences, first, most_users);
//     sequences.fill(first, end, batch);
//     ...
//     first = end;
//   }
#pragma once

#include <cstdint>
#include <vector>

#include "turbogr/data/batch.h"
#include "turbogr/data/loader.h"
#include "turbogr/data/store.h"
#include "turbogr/run/history.h"

namespace turbogr::run {

class Sequences {
 public:
  virtual ~Sequences() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t user(std::int64_t place) const = 0;
  virtual std::int64_t tokens(std::int64_t place) const = 0;
  virtual void fill(std::int64_t first, std::int64_t end, data::Batch& batch) const = 0;
};

// One behind the last sequence of a batch that begins at `first`: as many users, at most
// `most_users`, as TrainedModel has tokens for; one at least.
std::int64_t batch_end(const Sequences& sequences, std::int64_t first, std::int64_t most_users);

// All that users did, in the order given.
class WholeHistories : public Sequences {
 public:
  WholeHistories(const data::Store& store, std::vector<std::int64_t> users,
                 const HistoryOptions& options);
  std::int64_t size() const override { return static_cast<std::int64_t>(users_.size()); }
  std::int64_t user(std::int64_t place) const override;
  std::int64_t tokens(std::int64_t place) const override;
  void fill(std::int64_t first, std::int64_t end, data::Batch& batch) const override;

 private:
  const data::Store& store_;
  std::vector<std::int64_t> users_;
  HistoryOptions options_;
};

// Histories that are in no store; `user` is their place.
class GivenHistories : public Sequences {
 public:
  GivenHistories(const data::Store& store, std::vector<std::vector<HistoryEvent>> histories,
                 const HistoryOptions& options);
  std::int64_t size() const override { return static_cast<std::int64_t>(histories_.size()); }
  std::int64_t user(std::int64_t place) const override { return place; }
  std::int64_t tokens(std::int64_t place) const override;
  void fill(std::int64_t first, std::int64_t end, data::Batch& batch) const override;

 private:
  const data::Store& store_;
  std::vector<std::vector<HistoryEvent>> histories_;
  HistoryOptions options_;
};

// What an evaluation asks: the history before a held-out target, at the target's time. In the
// store's order; users without a target are left out with a warning.
class EvaluationHistories : public Sequences {
 public:
  EvaluationHistories(const data::Store& store, const std::vector<std::int64_t>& users,
                      const data::LoaderOptions& options);
  std::int64_t size() const override { return static_cast<std::int64_t>(windows_.size()); }
  std::int64_t user(std::int64_t place) const override;
  std::int64_t tokens(std::int64_t place) const override;
  void fill(std::int64_t first, std::int64_t end, data::Batch& batch) const override;

 private:
  std::vector<data::Window> windows_;
  data::Collator collator_;
};

}  // namespace turbogr::run
