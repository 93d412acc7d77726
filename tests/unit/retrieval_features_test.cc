// Features in the retrieval task: steps over ranks and schedules, and a step by hand in double.
#include "turbogr/eval/retrieval_features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/rank_training.h"
#include "tests/support/retrieval_features.h"
#include "tests/support/settled_mean.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/samples/cross_hash.h"
#include "turbogr/model/model.h"
#include "turbogr/train/negative_sampler.h"

namespace turbogr::train {
namespace {

using test::FeatureWorld;

constexpr std::int64_t kMostItems = 3000;

const FeatureWorld& world() {
  static const FeatureWorld made(kMostItems);
  return made;
}

RetrievalOptions with_features(RetrievalOptions options, FeatureWorld::Parts parts) {
  parts.optimiser = options.table_optimiser;
  options.features = world().features(parts);
  options.most_sequences = kShape.sequences;
  options.model.max_length += options.features.num_prefix();
  return options;
}

std::vector<FeatureWorld::Parts> every_kind() {
  return {{.events = false, .prefix = false},
          {.events = false, .prefix = false, .item_output = false},
          {.items = false, .prefix = false},
          {.items = false, .events = false},
          {},
          {.item_output = false}};
}

TEST(RetrievalFeatures, RowsOfZerosChangeNoBitOfALoss) {
  const Outcome plain = train_alone<float>(options_of());
  for (FeatureWorld::Parts parts : every_kind()) {
    if (parts.prefix) continue;  // more tokens, another sum
    parts.scale = 0;
    const Outcome zeros = train_alone<float>(with_features(options_of(), parts));
    EXPECT_EQ(zeros.results[0].loss, plain.results[0].loss);
    EXPECT_NE(zeros.results.back().loss, plain.results.back().loss);  // they are trained
  }
  // Nothing to encode: an item is its row.
  RetrievalOptions output = options_of();
  output.features.item_output = true;
  expect_equal(plain, train_alone<float>(output), "output = item without features");
}

// Tables of items, events and users beside the one of ids.
TEST(RetrievalFeatures, AveragedReplicasOfAllTablesTrainAndSettleOnTheirMean) {
  RankOptions average = {.replicas = embedding::ReplicaMode::kAverage, .average_every = 2};
  const RetrievalOptions options = with_features(options_of(), {});
  ASSERT_GT(options.features.tables.size(), 3u);
  const Outcome averaged = train_on_ranks<float>(options, {4, 2}, average);
  const Outcome exact = train_on_ranks<float>(options, {4, 2}, {});
  EXPECT_NEAR(averaged.results.back().loss, exact.results.back().loss, 0.1);
  EXPECT_FALSE(averaged.weights == exact.weights);
  dist::run_threads(3, [&](dist::Communicator& world) {
    const Context ctx({.threads = 1});
    RetrievalOptions own = options;
    own.ranks = average;
    own.ranks.average_every = 100;
    own.ranks.topology = dist::make_topology(world.nodes(), 1);
    RetrievalTrainer<float> trainer(ctx, world, own, kShape.items, counts_of(own));
    trainer.initialise(ctx);
    for (int step = 0; step < 3; ++step) {
      trainer.step(ctx, batches_of(step, world.rank(), world.size()));
    }
    test::expect_settles_on_mean(ctx, world, trainer.rows(), 1 + own.features.tables.size());
  });
}

TEST(RetrievalFeatures, SchedulesThatPromiseItGiveTheSameBits) {
  for (const FeatureWorld::Parts& parts : every_kind()) {
    const RetrievalOptions options = with_features(options_of(), parts);
    for (const Layout layout : {Layout{1, 1}, {4, 2}}) {
      const Outcome serial = train_on_ranks<float>(options, layout, {});
      for (const StepSchedule schedule : {StepSchedule::kOverlap, StepSchedule::kExactPrefetch}) {
        expect_equal(serial, train_on_ranks<float>(options, layout, {.schedule = schedule}, 2),
                     "schedule");
      }
      expect_equal(serial,
                   train_on_ranks<float>(options, layout,
                                         {.schedule = StepSchedule::kSemiAsync, .delay = 0}),
                   "semi_async without delay");
    }
    RetrievalOptions clipped = options;
    clipped.clip = 0.05;
    expect_equal(train_on_ranks<float>(clipped, {4, 2}, {}, -1, kMostItems),
                 train_on_ranks<float>(clipped, {4, 2}, {.schedule = StepSchedule::kExactPrefetch},
                                       -1, kMostItems),
                 "clipped");
  }
}

TEST(RetrievalFeatures, AnyNumberOfRanksTrainsTheSame) {
  for (const FeatureWorld::Parts& parts : every_kind()) {
    const RetrievalOptions options = with_features(smooth_options(), parts);
    const Outcome alone = train_alone<float>(options);
    for (const Layout layout : {Layout{1, 1}, {2, 2}, {4, 2}, {4, 4}}) {
      for (const StepSchedule schedule : {StepSchedule::kSerial, StepSchedule::kExactPrefetch}) {
        expect_near(alone, train_on_ranks<float>(options, layout, {.schedule = schedule}), 2e-6,
                    std::to_string(layout.ranks) + " ranks");
      }
    }
    const RankOptions late = {.schedule = StepSchedule::kSemiAsync};
    expect_near(train_on_ranks<float>(options, {1, 1}, late),
                train_on_ranks<float>(options, {4, 2}, late), 2e-6, "semi_async");
  }
}

TEST(RetrievalFeatures, Bf16IsNear) {
  for (const FeatureWorld::Parts& parts : every_kind()) {
    const RetrievalOptions options = with_features(options_of(), parts);
    const Outcome wide = train_alone<float>(options), narrow = train_alone<bf16>(options);
    EXPECT_NEAR(narrow.results[0].loss, wide.results[0].loss, 0.02 * wide.results[0].loss);
    EXPECT_NEAR(narrow.results[0].gradient_norm, wide.results[0].gradient_norm,
                0.05 * wide.results[0].gradient_norm);
  }
}

// A step's loss in double, as the formula has it: rows are added up feature by feature.
class ByHand {
 public:
  ByHand(const RetrievalOptions& options, const std::vector<data::Batch>& batches)
      : options_(options), batches_(batches), model_(ctx_, options.model, model_memory(options)) {
    model_.initialise(ctx_, options.seed);
    NegativeSampler sampler(options.negatives, kShape.items);
    sampler.begin_step({options.seed, 0});
    for (const data::Batch& batch : batches) {
      Tensor ids(DType::kI64, {batch.num_tokens(), options.negatives.count});
      sampler.draw_own(ctx_, data::view_of(batch.row_keys), ids.view<std::int64_t, 2>());
      negatives_.push_back(std::move(ids));
    }
  }

  std::vector<std::vector<double>> tables;  // the items', then the features'

  double loss() {
    double sum = 0, count = 0;
    for (std::size_t b = 0; b < batches_.size(); ++b) {
      sum += loss_of(batches_[b], negatives_[b].view<std::int64_t, 2>());
      count += static_cast<double>(batches_[b].num_tokens());
    }
    return sum / count;
  }

 private:
  using Row = std::vector<double>;

  void add(std::size_t table, std::int64_t id, double share, Row& row) const {
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] += share * tables[table][static_cast<std::size_t>(id) * row.size() + c];
    }
  }
  void add_feature(const eval::RetrievalFeature& feature, const data::EventPlace& place,
                   Row& row) const {
    std::vector<std::int64_t> ids;
    data::read_ids(feature.reads, place, ids);
    const bool mean = feature.rows.pooling == model::Pooling::kMean;
    for (const std::int64_t id : ids) {
      add(1 + feature.rows.table, id, mean ? 1.0 / static_cast<double>(ids.size()) : 1.0, row);
    }
  }
  Row item(std::int64_t id, bool features) const {
    Row row(static_cast<std::size_t>(options_.model.width));
    add(0, id, 1, row);
    for (const eval::RetrievalFeature& feature : options_.features.items) {
      if (features) add_feature(feature, {.item = id}, row);
    }
    return row;
  }
  static double cosine(const Row& a, const Row& b) {
    double dot = 0, aa = 0, bb = 0;
    for (std::size_t c = 0; c < a.size(); ++c) {
      dot += a[c] * b[c];
      aa += a[c] * a[c];
      bb += b[c] * b[c];
    }
    return dot / std::sqrt(aa) / std::sqrt(bb);
  }

  double loss_of(const data::Batch& batch, View<const std::int64_t, 2> negatives) {
    const eval::RetrievalFeatures& features = options_.features;
    std::vector<std::int64_t> offsets = {0}, key_times, query_times, event_of;
    std::vector<std::uint64_t> keys;
    std::vector<double> rows;
    for (std::size_t b = 0; b < batch.users.size(); ++b) {
      const auto first = static_cast<std::size_t>(batch.offsets[b]);
      for (std::size_t f = 0; f < features.prefix.size(); ++f) {
        Row row(static_cast<std::size_t>(options_.model.width));
        add_feature(features.prefix[f], {.user = batch.users[b]}, row);
        rows.insert(rows.end(), row.begin(), row.end());
        key_times.push_back(batch.key_times[first]);
        query_times.push_back(batch.key_times[first]);
        keys.push_back((static_cast<std::uint64_t>(batch.windows[b] + 1) << data::kPositionBits) -
                       1 - f);
        event_of.push_back(-1);
      }
      for (auto i = first; i < static_cast<std::size_t>(batch.offsets[b + 1]); ++i) {
        Row row = item(batch.items[i], true);
        const data::EventPlace place = {
            batch.users[b], batch.items[i],
            batch.first_events[b] + static_cast<std::int64_t>(i - first), batch.key_times[i]};
        for (const eval::RetrievalFeature& feature : features.events)
          add_feature(feature, place, row);
        rows.insert(rows.end(), row.begin(), row.end());
        key_times.push_back(batch.key_times[i]);
        query_times.push_back(batch.query_times[i]);
        keys.push_back(batch.row_keys[i]);
        event_of.push_back(static_cast<std::int64_t>(i));
      }
      offsets.push_back(std::ssize(keys));
    }
    const std::int64_t tokens = std::ssize(keys), width = options_.model.width;
    model::StepInput step;
    step.offsets = data::view_of(offsets);
    step.num_tokens = tokens;
    step.key_times = data::view_of(key_times);
    step.query_times = data::view_of(query_times);
    step.row_keys = data::view_of(keys);
    step.training = true;
    step.seed = options_.seed;
    const Rows<const double> out = model_.forward(ctx_, step, {rows.data(), tokens, width, width});
    double sum = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t event = event_of[static_cast<std::size_t>(token)];
      if (event < 0) continue;
      const Row query(out.row(token), out.row(token) + width);
      const std::int64_t target = batch.targets[static_cast<std::size_t>(event)];
      const auto score = [&](std::int64_t id) {
        return cosine(query, item(id, features.item_output)) / options_.temperature;
      };
      double all = std::exp(score(target));
      for (std::int64_t r = 0; r < negatives.shape[1]; ++r) {
        if (negatives(event, r) != target) all += std::exp(score(negatives(event, r)));
      }
      sum += std::log(all) - score(target);
    }
    return sum;
  }

  const RetrievalOptions& options_;
  const std::vector<data::Batch>& batches_;
  const Context ctx_{{.threads = 1}};
  model::Model<double> model_;
  std::vector<Tensor> negatives_;
};

// SGD moves every row by its gradient: compared with central differences of the formula in double.
TEST(RetrievalFeatures, AStepIsThatOfTheFormulaAndItsCentralDifferences) {
  for (const FeatureWorld::Parts& parts : every_kind()) {
    RetrievalOptions options = smooth_options();
    options.table.rate = 1;
    options = with_features(options, parts);
    const std::vector<data::Batch> batches = batches_of(0, 0, 1);
    const Context ctx({.threads = 1});
    RetrievalTrainer<float> trainer(ctx, options, kShape.items);
    trainer.initialise(ctx);
    ByHand formula(options, batches);
    const auto table = [&](std::size_t t) {
      const Tensor& weights = trainer.rows().shard(t).weight_tensor();
      const auto* values = reinterpret_cast<const float*>(weights.data());
      return std::vector<double>(values, values + weights.size());
    };
    for (std::size_t t = 0; t <= options.features.tables.size(); ++t) {
      formula.tables.push_back(table(t));
    }
    const StepResult result = trainer.step(ctx, batches);
    EXPECT_NEAR(result.loss, formula.loss(), 1e-5);
    PhiloxStream random(3);
    int moved = 0;
    for (std::size_t t = 0; t < formula.tables.size(); ++t) {
      const std::vector<double> after = table(t);
      for (int pick = 0; pick < 24; ++pick) {
        const std::size_t at = random.below(after.size());
        double& value = formula.tables[t][at];
        const double before = value, step = 1e-4;
        value = before + step;
        const double above = formula.loss();
        value = before - step;
        const double below = formula.loss();
        value = before;
        const double difference = (above - below) / (2 * step);
        EXPECT_NEAR(before - after[at], difference, 2e-5 * std::max(1.0, std::abs(difference)))
            << "table " << t << ", weight " << at;
        moved += after[at] != before;
      }
    }
    EXPECT_GT(moved, 24);
  }
}

}  // namespace
}  // namespace turbogr::train
