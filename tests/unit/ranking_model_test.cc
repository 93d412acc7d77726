#include "turbogr/model/ranking_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/ranking_case.h"

namespace turbogr::model {
namespace {

using test::EventCase;
using test::message_of;
using test::RankingBatch;

const EventCase kCase = {.prefix = 2, .history = {5, 0, 9, 1}, .targets = {2, 1, 3, 0}};

template <class T>
Tensor copied(Rows<const T> rows) {
  Tensor out(dtype_of<T>(), {rows.rows, rows.cols});
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    std::copy_n(rows.row(r), rows.cols, out.view<T, 2>().data + r * rows.cols);
  }
  return out;
}

// Logits, gradients of rows and of all parameters after one step.
template <class T>
std::vector<Tensor> one_step(const Context& ctx, const RankingMemory& memory,
                             RankingBatch<T>& batch, const RankingOptions& options) {
  RankingModel<T> model(ctx, options, memory);
  model.initialise(ctx, 5);
  std::vector<Tensor> all;
  all.push_back(copied<T>(model.forward(ctx, batch.step, batch.rows())));
  model.backward(ctx, batch.step, batch.rows(), batch.dlogits.template view<T, 2>(),
                 batch.gradients());
  all.push_back(copied<T>(batch.dprefix.template view<T, 2>()));
  all.push_back(copied<T>(batch.ditems.template view<T, 2>()));
  for (int i = 0; i < model.parameters().size(); ++i) {
    all.push_back(std::move(model.parameters().gradient(i)));
  }
  return all;
}

class RankingModelOf : public ::testing::TestWithParam<ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Kind, RankingModelOf, test::model_kinds(), test::kind_name);

TEST_P(RankingModelOf, ThreadsAndRecomputeChangeNoBit) {
  const RankingOptions options = test::small_ranking(GetParam());
  RankingBatch<float> batch(kCase, options);
  const Context one({.threads = 1});
  const std::vector<Tensor> wanted = one_step<float>(one, batch.memory(), batch, options);
  for (const int threads : {1, 3}) {
    RankingMemory memory = batch.memory();
    memory.layers.recompute = threads == 1;
    const Context ctx({.threads = threads});
    const std::vector<Tensor> got = one_step<float>(ctx, memory, batch, options);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(test::same_bits(got[i], wanted[i]));
  }
}

TEST(RankingModel, PostProcessorsMakeWhatTheySay) {
  const Context ctx({.threads = 1});
  for (const PostKind kind : {PostKind::kLayer, PostKind::kL2}) {
    RankingOptions options = test::small_ranking();
    options.post = kind;
    RankingBatch<double> batch(kCase, options);
    RankingModel<double> model(ctx, options, batch.memory());
    model.initialise(ctx, 5);
    model.forward(ctx, batch.step, batch.rows());
    const Rows<const double> given = model.target_rows(batch.step.num_targets);
    const Rows<const double> made = model.user_rows(batch.step.num_targets);
    for (std::int64_t r = 0; r < given.rows; ++r) {
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < given.cols; ++c) {
        sum += given(r, c);
        squares += given(r, c) * given(r, c);
      }
      const auto count = static_cast<double>(given.cols);
      const bool norm = kind == PostKind::kLayer;
      const double mean = norm ? sum / count : 0;
      const double length =
          norm ? std::sqrt(squares / count - mean * mean + 1e-5) : std::sqrt(squares);
      for (std::int64_t c = 0; c < given.cols; ++c) {
        EXPECT_NEAR(made(r, c), (given(r, c) - mean) / length, 1e-12);
      }
    }
  }
}

TEST_P(RankingModelOf, InferenceGivesTheSameLogits) {
  const RankingOptions options = test::small_ranking(GetParam());
  RankingBatch<float> batch(kCase, options);
  batch.step.training = false;
  const Context ctx({.threads = 2});
  const std::vector<Tensor> wanted = one_step<float>(ctx, batch.memory(), batch, options);
  RankingMemory memory = batch.memory();
  memory.layers.inference = true;
  RankingModel<float> model(ctx, options, memory);
  model.initialise(ctx, 5);
  EXPECT_TRUE(
      test::same_bits(copied<float>(model.forward(ctx, batch.step, batch.rows())), wanted[0]));
  EXPECT_LT(model.activation_bytes(),
            RankingModel<float>(ctx, options, batch.memory()).activation_bytes());
}

// Logits and every gradient: the fast kernels beside the specification.
TEST_P(RankingModelOf, SingleStaysNearDouble) {
  RankingOptions options = test::small_ranking(GetParam());
  options.input_dropout = options.dropout = 0;
  RankingBatch<double> wide(kCase, options);
  RankingBatch<float> narrow(kCase, options);
  const Context ctx({.threads = 2});
  const std::vector<Tensor> wanted = one_step<double>(ctx, wide.memory(), wide, options);
  const std::vector<Tensor> got = one_step<float>(ctx, narrow.memory(), narrow, options);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(test::max_error(got[i], wanted[i]),
              1e-4 * std::max(1.0, test::max_magnitude(wanted[i])))
        << i;
  }
}

TEST_P(RankingModelOf, Bf16StaysNearSingle) {
  RankingOptions options = test::small_ranking(GetParam());
  options.input_dropout = options.dropout = 0;
  RankingBatch<float> wide(kCase, options);
  RankingBatch<bf16> narrow(kCase, options);
  const Context ctx({.threads = 2});
  const std::vector<Tensor> wanted = one_step<float>(ctx, wide.memory(), wide, options);
  const std::vector<Tensor> got = one_step<bf16>(ctx, narrow.memory(), narrow, options);
  EXPECT_LE(test::max_error(got[0], wanted[0]),
            0.1 * std::max(1.0, test::max_magnitude(wanted[0])));
}

// They are added to what is learnt, which goes on as without them.
TEST_P(RankingModelOf, LogitsStartFromTheirBases) {
  RankingOptions options = test::small_ranking(GetParam());
  const Context ctx({.threads = 1});
  RankingBatch<double> plain(kCase, options);
  const std::vector<Tensor> without = one_step<double>(ctx, plain.memory(), plain, options);
  options.bases = true;
  RankingBatch<double> batch(kCase, options);
  const std::vector<Tensor> with = one_step<double>(ctx, batch.memory(), batch, options);
  for (std::int64_t i = 0; i < without[0].size(); ++i) {
    EXPECT_NEAR(test::element(with[0], i),
                test::element(without[0], i) + batch.bases[static_cast<std::size_t>(i)], 1e-12);
  }
  for (std::size_t t = 1; t < with.size(); ++t) {
    EXPECT_TRUE(test::same_bits(with[t], without[t])) << t;
  }
}

// A sequence alone and among others, and a target with and without others beside it.
TEST_P(RankingModelOf, NeitherOtherSequencesNorOtherTargetsAreSeen) {
  const RankingOptions options = test::small_ranking(GetParam());
  RankingBatch<double> batch(kCase, options);
  batch.step.training = false;
  const Context ctx({.threads = 1});
  RankingModel<double> model(ctx, options, batch.memory());
  model.initialise(ctx, 5);
  const Tensor before = copied<double>(model.forward(ctx, batch.step, batch.rows()));
  // The second target of the first sequence and all of the third become others.
  const auto items = batch.items.view<double, 2>();
  for (std::int64_t c = 0; c < items.shape[1]; ++c) items(6, c) += 1;
  for (std::int64_t event = 8; event < 20; ++event) items(event, 0) -= 2;
  const Tensor after = copied<double>(model.forward(ctx, batch.step, batch.rows()));
  for (const std::int64_t target : {0, 2}) {
    for (std::int64_t k = 0; k < options.tasks; ++k) {
      const std::int64_t at = target * options.tasks + k;
      EXPECT_EQ(test::element(after, at), test::element(before, at));
    }
  }
  EXPECT_NE(test::element(after, options.tasks), test::element(before, options.tasks));
}

// A batch is its sequences and targets one by one: each target's logits are those of the sequence
// with that target alone, for prefixes and histories of any length, whatever stands before it.
TEST_P(RankingModelOf, ABatchIsItsTargetsOneByOne) {
  for (const std::int64_t prefix : {0, 3}) {
    for (const bool full : {false, true}) {
      RankingOptions options = test::small_ranking(GetParam());
      options.prefix = prefix;
      options.full_prefix = full;
      const EventCase c = {.prefix = prefix, .history = {5, 0, 9, 1}, .targets = {2, 1, 3, 4}};
      RankingBatch<double> batch(c, options);
      batch.step.training = false;
      // A request's targets are shown at one time, which is all that they share.
      std::size_t event = 0;
      for (std::size_t b = 0; b < c.history.size(); ++b) {
        const auto first = event + static_cast<std::size_t>(c.history[b]);
        event = first + static_cast<std::size_t>(c.targets[b]);
        std::fill(batch.events.times.begin() + static_cast<std::ptrdiff_t>(first),
                  batch.events.times.begin() + static_cast<std::ptrdiff_t>(event), 2100);
      }
      batch.fill_times();
      const Context ctx({.threads = 2});
      RankingModel<double> model(ctx, options, batch.memory());
      model.initialise(ctx, 5);
      const Tensor together = copied<double>(model.forward(ctx, batch.step, batch.rows()));
      std::int64_t target = 0, begin = 0;
      for (std::size_t b = 0; b < c.history.size(); begin += c.history[b] + c.targets[b], ++b) {
        for (std::int64_t t = 0; t < c.targets[b]; ++t, ++target) {
          RankingBatch<double> alone({.prefix = prefix, .history = {c.history[b]}, .targets = {1}},
                                     options);
          alone.step.training = false;
          alone.step.most_targets = t % 2;  // known to be one, or not
          const auto copy = [&](Tensor& to, std::int64_t row, const Tensor& from,
                                std::int64_t from_row) {
            for (std::int64_t k = 0; k < to.shape()[1]; ++k) {
              to.view<double, 2>()(row, k) = from.view<double, 2>()(from_row, k);
            }
          };
          if (prefix > 0) copy(alone.prefix, 0, batch.prefix, static_cast<std::int64_t>(b));
          for (std::int64_t i = 0; i <= c.history[b]; ++i) {
            const std::int64_t from = begin + (i < c.history[b] ? i : c.history[b] + t);
            copy(alone.items, i, batch.items, from);
            alone.events.times[static_cast<std::size_t>(i)] =
                batch.events.times[static_cast<std::size_t>(from)];
            alone.events.masks[static_cast<std::size_t>(i)] =
                batch.events.masks[static_cast<std::size_t>(from)];
          }
          alone.fill_times();
          const Rows<const double> logits = model.forward(ctx, alone.step, alone.rows());
          for (std::int64_t k = 0; k < options.tasks; ++k) {
            EXPECT_NEAR(logits(0, k), test::element(together, target * options.tasks + k), 1e-13)
                << "sequence " << b << ", target " << t;
          }
        }
      }
    }
  }
}

TEST(RankingModel, TokensHaveTheTimesOfTheirEventsAndAskAtThoseOfTheNext) {
  test::EventBatch batch({.prefix = 2, .history = {3, 0, 1, 0}, .targets = {2, 1, 0, 0}});
  batch.times = {10, 20, 30, 45, 40, 7, 9};
  std::vector<std::int64_t> keys(15), queries(15);
  fill_token_times(batch.view(), {keys.data(), {15}}, {queries.data(), {15}});
  EXPECT_EQ(keys, (std::vector<std::int64_t>{10, 10, 10, 20, 30, 45, 40,  //
                                             7, 7, 7, 9, 9, 9, 0, 0}));
  EXPECT_EQ(queries, (std::vector<std::int64_t>{10, 10, 20, 30, 45, 45, 40,  //
                                                7, 7, 7, 9, 9, 9, 0, 0}));
}

TEST_P(RankingModelOf, ATargetsOwnActionsChangeNothing) {
  const RankingOptions options = test::small_ranking(GetParam());
  RankingBatch<float> batch(kCase, options);
  const Context ctx({.threads = 1});
  const std::vector<Tensor> wanted = one_step<float>(ctx, batch.memory(), batch, options);
  for (const std::size_t event : {5u, 6u, 7u, 17u, 18u, 19u}) {
    batch.events.masks[event] = ~batch.events.masks[event];
  }
  const std::vector<Tensor> got = one_step<float>(ctx, batch.memory(), batch, options);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(test::same_bits(got[i], wanted[i]));
}

TEST_P(RankingModelOf, ABatchWithoutSequencesOrTargetsIsFine) {
  const RankingOptions options = test::small_ranking(GetParam());
  const Context ctx({.threads = 1});
  for (const EventCase& c :
       {EventCase{.prefix = 2}, EventCase{.prefix = 2, .history = {3}, .targets = {0}}}) {
    RankingBatch<float> batch(c, options);
    const std::vector<Tensor> all = one_step<float>(ctx, batch.memory(), batch, options);
    for (const Tensor& each : all) EXPECT_EQ(test::max_magnitude(each), 0.0);
  }
}

// The published shape: 3 layers of width 512 and eight prefix features.
TEST(RankingModel, HasThePublishedNumberOfParameters) {
  const Context ctx({.threads = 1});
  const RankingOptions options = {.embedding = 512,
                                  .prefix = 8,
                                  .item_features = 3,
                                  .actions = 3,
                                  .layers = 3,
                                  .width = 512,
                                  .heads = 4,
                                  .dq = 128,
                                  .dv = 128};
  RankingModel<float> model(
      ctx, options, {.layers = {.capacity = 1, .sequences = 1, .inference = true}, .targets = 1});
  EXPECT_EQ(model.parameters().count(), 15243057);
}

TEST(RankingModel, StartsAsItsOptionsSay) {
  const Context ctx({.threads = 1});
  RankingOptions options = test::small_ranking();
  options.width = 64;
  options.positions = 400;
  RankingModel<float> model(ctx, options,
                            {.layers = {.capacity = 1, .sequences = 1}, .targets = 1});
  model.initialise(ctx, 7);
  const auto values = [&](const std::string& name) -> const Tensor& {
    for (int i = 0; i < model.parameters().size(); ++i) {
      if (model.parameters().spec(i).name == name) return model.parameters().value(i);
    }
    throw Error("no parameter " + name);
  };
  EXPECT_LE(test::max_magnitude(values("position")), 1.0 / 20);
  EXPECT_GT(test::max_magnitude(values("position")), 0.9 / 20);
  EXPECT_EQ(test::max_magnitude(values("prefix.1.bias")), 0);
  EXPECT_EQ(test::element(values("content.swish_weight"), 0), 1);
  EXPECT_EQ(test::max_magnitude(values("layers.0.projection_bias")), 0);
  const double bound = xavier_bound(64, 2 * 2 * (3 + 2));
  EXPECT_LE(test::max_magnitude(values("layers.0.projection")), bound);
  EXPECT_GT(test::max_magnitude(values("layers.0.projection")), 0.9 * bound);
}

TEST(RankingModel, TheBatchsNormaliserIsItsLongestHistoryMostTargetsAndPrefix) {
  const test::EventBatch batch(kCase);
  EXPECT_EQ(batch_norm_length(batch.view()), 9 + 3 + 2);
  EXPECT_EQ(batch_norm_length(test::EventBatch({.prefix = 0}).view()), 1);
}

TEST(RankingModel, SaysWhatIsWrong) {
  const RankingOptions options = test::small_ranking();
  const Context ctx({.threads = 1});
  RankingBatch<float> batch(kCase, options);
  const auto message = [&](const RankingMemory& memory, const RankingRows<const float>& rows) {
    RankingModel<float> model(ctx, options, memory);
    return message_of([&] { model.forward(ctx, batch.step, rows); });
  };
  EXPECT_EQ(message(batch.memory(), batch.rows()), "");
  RankingMemory few = batch.memory();
  few.targets = 5;
  EXPECT_EQ(
      message(few, batch.rows()),
      "a step of 6 targets in a model planned for 5; plan for more or make the batch smaller");
  few = batch.memory();
  few.layers.sequences = 3;
  EXPECT_NE(message(few, batch.rows()).find("4 sequences in a model planned for 3"),
            std::string::npos);
  few.layers.sequences = 0;
  EXPECT_NE(
      message_of([&] { RankingModel<float>(ctx, options, few); }).find("give at least 1 of both"),
      std::string::npos);
  RankingRows<const float> narrow = batch.rows();
  narrow.items.cols = 6;
  EXPECT_EQ(message(batch.memory(), narrow),
            "ranking model: item rows are [21, 6]; wanted [21, 9]");
  narrow = batch.rows();
  narrow.prefix.cols = 3;
  EXPECT_EQ(message(batch.memory(), narrow),
            "ranking model: prefix rows are [4, 3]; wanted [4, 6]");
  RankingOptions based = options;
  based.bases = true;
  EXPECT_EQ(
      message_of([&] {
        RankingModel<float>(ctx, based, batch.memory()).forward(ctx, batch.step, batch.rows());
      }),
      "ranking model: 0 numbers that logits start from; wanted 12");
  RankingOptions shorter = options;
  shorter.max_length = 13;
  RankingModel<float> model(ctx, shorter, batch.memory());
  EXPECT_EQ(message_of([&] { model.forward(ctx, batch.step, batch.rows()); }),
            "ranking model: sequence 2 has 14 tokens in a model of max_length 13; cut its history "
            "or raise max_length");
  batch.step.sequences.num_prefix = 1;
  EXPECT_EQ(message(batch.memory(), batch.rows()),
            "ranking model: sequences with 1 prefix tokens for a model of 2");
}

TEST(RankingOptions, SayWhatIsWrong) {
  const auto message = [](auto change) {
    RankingOptions options = test::small_ranking();
    change(options);
    return message_of([&] { check_ranking_options(options); });
  };
  EXPECT_EQ(message([](RankingOptions&) {}), "");
  const std::set<std::string> messages = {message([](RankingOptions& o) { o.embedding = 0; }),
                                          message([](RankingOptions& o) { o.prefix = -1; }),
                                          message([](RankingOptions& o) { o.item_features = 0; }),
                                          message([](RankingOptions& o) { o.actions = 33; }),
                                          message([](RankingOptions& o) { o.tasks = 0; }),
                                          message([](RankingOptions& o) { o.hidden = 0; }),
                                          message([](RankingOptions& o) { o.positions = 2; }),
                                          message([](RankingOptions& o) { o.time_buckets = 0; }),
                                          message([](RankingOptions& o) { o.input_dropout = 1; }),
                                          message([](RankingOptions& o) { o.layers = 0; })};
  EXPECT_EQ(messages.size(), 10u);
  EXPECT_FALSE(messages.contains(""));
}

}  // namespace
}  // namespace turbogr::model
