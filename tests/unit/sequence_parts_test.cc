#include "turbogr/data/sequence_parts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/data.h"
#include "turbogr/model/model.h"

namespace turbogr::data {
namespace {

std::vector<std::int64_t> values_of(View<const std::int64_t, 1> view) {
  return {view.data, view.data + view.shape[0]};
}

std::vector<float> weights_of(const SequenceMarks& marks,
                              const std::vector<std::int64_t>& offsets) {
  std::vector<float> weights(static_cast<std::size_t>(offsets.back()), 9.0f);
  marks.weigh(test::view_of(offsets), 0.5f, test::view_of(weights));
  return weights;
}

std::vector<std::int64_t> tokens_of(const SequenceMarks& marks,
                                    const std::vector<std::int64_t>& offsets) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(marks.predicting()), -1);
  marks.list(test::view_of(offsets), test::view_of(tokens));
  return tokens;
}

TEST(SequenceMarks, WithoutTargetsEveryTokenPredicts) {
  const std::vector<std::int64_t> offsets = {0, 3, 3, 5};
  SequenceMarks marks({});
  marks.mark(test::view_of(offsets), true);
  EXPECT_TRUE(marks.num_prefix().empty());
  EXPECT_TRUE(marks.num_targets().empty());
  EXPECT_EQ(marks.predicting(), 5);
  EXPECT_EQ(weights_of(marks, offsets), (std::vector<float>(5, 0.5f)));
  EXPECT_EQ(tokens_of(marks, offsets), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(SequenceMarks, WithTargetsOnlyTheyPredict) {
  const std::vector<std::int64_t> offsets = {0, 6, 6, 7, 10};
  SequenceMarks marks({.prefix = 2, .targets = 2});
  marks.mark(test::view_of(offsets), true);
  EXPECT_EQ(values_of(marks.num_targets()), (std::vector<std::int64_t>{2, 0, 1, 2}));
  EXPECT_EQ(values_of(marks.num_prefix()), (std::vector<std::int64_t>{2, 0, 0, 1}));
  EXPECT_EQ(marks.predicting(), 5);
  EXPECT_EQ(weights_of(marks, offsets),
            (std::vector<float>{0, 0, 0, 0, .5f, .5f, .5f, 0, .5f, .5f}));
  EXPECT_EQ(tokens_of(marks, offsets), (std::vector<std::int64_t>{4, 5, 6, 8, 9}));
  // Asked for the next item, only the last token is a target.
  marks.mark(test::view_of(offsets), false);
  EXPECT_EQ(values_of(marks.num_targets()), (std::vector<std::int64_t>{1, 0, 1, 1}));
  EXPECT_EQ(values_of(marks.num_prefix()), (std::vector<std::int64_t>{2, 0, 0, 2}));
}

// What must never happen: a token that sees the item it has to predict.
TEST(SequenceMarks, NoPredictingTokenSeesWhatComesAfterIt) {
  constexpr std::int64_t kTokens = 9, kWidth = 8;
  const std::vector<std::int64_t> offsets = {0, kTokens};
  const Context ctx({.threads = 1});
  for (const auto kind : {model::ModelKind::kHstu, model::ModelKind::kFuxi}) {
    model::Model<double> layers(ctx,
                                {.kind = kind,
                                 .layers = 3,
                                 .width = kWidth,
                                 .dq = kWidth,
                                 .dv = kWidth,
                                 .feed_forward = kWidth,
                                 .max_length = kTokens,
                                 .bias = model::BiasKind::kPosition},
                                {.capacity = kTokens});
    layers.initialise(ctx, 1);
    SequenceMarks marks({.prefix = 2, .targets = 3});
    marks.mark(test::view_of(offsets), true);
    model::StepInput step{.offsets = test::view_of(offsets), .num_tokens = kTokens};
    step.num_prefix = marks.num_prefix();
    step.num_targets = marks.num_targets();
    Tensor rows = test::random_tensor<double>({kTokens, kWidth}, 2);
    const auto outputs = [&] {
      const Rows<const double> out = layers.forward(ctx, step, rows.view<double, 2>());
      return std::vector<double>(out.data, out.data + kTokens * kWidth);
    };
    const std::vector<double> before = outputs();
    for (std::int64_t changed = 0; changed < kTokens; ++changed) {
      double& element = rows.view<double, 2>()(changed, 3);
      const double was = element;
      element += 1;
      const std::vector<double> after = outputs();
      element = was;
      for (std::int64_t i = kTokens - 3; i < kTokens; ++i) {
        const bool same =
            std::memcmp(&before[static_cast<std::size_t>(i * kWidth)],
                        &after[static_cast<std::size_t>(i * kWidth)], kWidth * sizeof(double)) == 0;
        const bool seen = changed == i || changed < kTokens - 3;
        EXPECT_EQ(same, !seen) << "token " << i << " of one changed at " << changed;
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::data
