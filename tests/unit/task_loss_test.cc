#include "turbogr/ops/loss/task_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/block.h"
#include "tests/support/messages.h"

namespace turbogr::ops {
namespace {

using test::message_of;

struct TaskCase {
  std::int64_t targets, tasks;
  std::vector<std::uint8_t> regression;
};

struct TaskResults {
  Tensor losses, dlogits;
};

// Labels of 0 and 1, or any number where the task predicts one; some weights 0, their labels NaN.
struct TaskLabels {
  Tensor labels, weights, sums;

  explicit TaskLabels(const TaskCase& c)
      : labels(DType::kF32, {c.targets, c.tasks}),
        weights(DType::kF32, {c.targets, c.tasks}),
        sums(DType::kF64, {c.tasks}) {
    PhiloxStream random(3);
    for (std::int64_t i = 0; i < c.targets; ++i) {
      for (std::int64_t k = 0; k < c.tasks; ++k) {
        const bool number = !c.regression.empty() && c.regression[static_cast<std::size_t>(k)] != 0;
        const float weight = static_cast<float>(random.below(4)) / 2;
        float& label = labels.view<float, 2>()(i, k);
        label = number ? static_cast<float>(random.normal()) : static_cast<float>(random.below(2));
        if (weight == 0) label = std::nanf("");
        weights.view<float, 2>()(i, k) = weight;
      }
    }
  }
};

template <class T>
TaskResults run(const Context& ctx, const TaskCase& c, TaskLabels& in, const Tensor& logits) {
  const test::Block<T> given(logits);
  test::Block<T> dlogits(c.targets, c.tasks);
  TaskResults out = {Tensor(DType::kF64, {c.tasks}), Tensor()};
  weight_sums(ctx, in.weights.view<float, 2>(), in.sums.view<double, 1>());
  View<const std::uint8_t, 1> regression;
  if (!c.regression.empty()) regression = {c.regression.data(), {c.tasks}};
  task_loss<T>(ctx, given.rows(), in.labels.view<float, 2>(), in.weights.view<float, 2>(),
               {.scale = 0.2, .weight_sums = in.sums.view<double, 1>(), .regression = regression},
               out.losses.view<double, 1>(), dlogits.rows());
  out.dlogits = dlogits.values();
  return out;
}

template <class T>
TaskResults plain(const TaskCase& c, const TaskLabels& in, const Tensor& logits) {
  TaskResults out = {Tensor(DType::kF64, {c.tasks}), Tensor(dtype_of<T>(), {c.targets, c.tasks})};
  for (std::int64_t k = 0; k < c.tasks; ++k) {
    const bool number = !c.regression.empty() && c.regression[static_cast<std::size_t>(k)] != 0;
    double total = 0, weights = 0;
    for (std::int64_t i = 0; i < c.targets; ++i) {
      weights += static_cast<double>(in.weights.view<float, 2>()(i, k));
    }
    const double factor = 0.2 / std::max(1.0, weights);
    for (std::int64_t i = 0; i < c.targets; ++i) {
      const double w = static_cast<double>(in.weights.view<float, 2>()(i, k));
      const double y = static_cast<double>(in.labels.view<float, 2>()(i, k));
      const double z = test::element(logits, i * c.tasks + k);
      const double p = 1 / (1 + std::exp(-z));
      if (w == 0) continue;
      total += w * (number ? (z - y) * (z - y) : -y * std::log(p) - (1 - y) * std::log(1 - p));
      out.dlogits.view<T, 2>()(i, k) = convert<T>(factor * w * (number ? 2 * (z - y) : p - y));
    }
    out.losses.view<double, 1>()(k) = factor * total;
  }
  return out;
}

template <class T>
class TaskLossOf : public ::testing::Test {};
using Formats = ::testing::Types<double, float, bf16>;
TYPED_TEST_SUITE(TaskLossOf, Formats);

TYPED_TEST(TaskLossOf, MatchesTheDefinition) {
  using T = TypeParam;
  const std::vector<TaskCase> cases = {
      {0, 2, {}}, {1, 1, {}}, {7, 3, {}}, {300, 2, {0, 1}}, {5, 1, {1}}};
  for (const TaskCase& c : cases) {
    TaskLabels in(c);
    const Tensor logits = test::random_tensor<T>({c.targets, c.tasks}, 4, 2.0);
    const TaskResults wanted = plain<T>(c, in, logits);
    const Context ctx({.threads = 2});
    const TaskResults got = run<T>(ctx, c, in, logits);
    EXPECT_LE(test::max_error(got.losses, wanted.losses), 1e-12);
    EXPECT_TRUE(test::matches(got.dlogits, wanted.dlogits, wanted.dlogits));
  }
}

TEST(TaskLoss, LargeLogitsStayFiniteAndSmallBatchesAreNotBlownUp) {
  const TaskCase c = {2, 2, {}};
  TaskLabels in(c);
  const std::vector<float> labels = {0, 1, 1, 1}, weights = {1, 0.25f, 1, 0};
  std::copy(labels.begin(), labels.end(), in.labels.view<float, 2>().data);
  std::copy(weights.begin(), weights.end(), in.weights.view<float, 2>().data);
  Tensor logits(DType::kF64, {2, 2});
  const std::vector<double> values = {800, 0, -800, 5};
  std::copy(values.begin(), values.end(), logits.view<double, 2>().data);
  const Context ctx({.threads = 1});
  const TaskResults got = run<double>(ctx, c, in, logits);
  EXPECT_DOUBLE_EQ(test::element(got.losses, 0), 0.2 * 1600 / 2);
  // Weights of 0.25 together: divided by 1, not by 0.25.
  EXPECT_DOUBLE_EQ(test::element(got.losses, 1), 0.2 * 0.25 * std::log(2.0));
  EXPECT_DOUBLE_EQ(test::element(got.dlogits, 1), 0.2 * 0.25 * -0.5);
  EXPECT_EQ(test::element(got.dlogits, 3), 0.0);
}

TEST(TaskLoss, SaysWhatIsWrong) {
  const Context ctx({.threads = 1});
  Tensor logits(DType::kF32, {2, 3}), other(DType::kF32, {2, 4});
  Tensor sums(DType::kF64, {3}), few(DType::kF64, {2});
  const std::vector<std::uint8_t> kinds = {0, 1};
  const auto call = [&](Tensor& labels, Tensor& totals, View<const std::uint8_t, 1> regression) {
    return message_of([&] {
      task_loss<float>(ctx, logits.view<float, 2>(), labels.view<float, 2>(),
                       logits.view<float, 2>(),
                       {.weight_sums = totals.view<double, 1>(), .regression = regression},
                       sums.view<double, 1>(), logits.view<float, 2>());
    });
  };
  EXPECT_EQ(call(logits, sums, {}), "");
  EXPECT_EQ(call(other, sums, {}), "task_loss: labels is [2, 4]; wanted [2, 3]");
  EXPECT_EQ(call(logits, few, {}), "task_loss: weight_sums has 2 elements; wanted 3");
  EXPECT_EQ(call(logits, sums, {kinds.data(), {2}}),
            "task_loss: regression has 2 elements; wanted 3");
  EXPECT_EQ(message_of([&] { weight_sums(ctx, logits.view<float, 2>(), few.view<double, 1>()); }),
            "weight_sums: sums has 2 elements; wanted 3");
}

}  // namespace
}  // namespace turbogr::ops
