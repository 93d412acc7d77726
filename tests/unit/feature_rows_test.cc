#include "turbogr/model/feature_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/event_case.h"
#include "tests/support/messages.h"
#include "tests/support/tolerance.h"

namespace turbogr::model {
namespace {

using test::message_of;

constexpr std::int64_t kWidth = 5;
const test::EventCase kCase = {.prefix = 3, .history = {5, 0, 9, 1}, .targets = {2, 1, 3, 0}};

// Two prefix features and an item feature share a table; a bag of each kind.
RankingFeatures features_of() {
  return {.table_rows = {7, 40, 3},
          .prefix = {{.name = "user", .table = 1, .least_events = 2},
                     {.name = "cross", .table = 2},
                     {.name = "liked", .table = 1, .pooling = Pooling::kMean, .most_ids = 3}},
          .items = {{.name = "item", .table = 1},
                    {.name = "tags", .table = 0, .pooling = Pooling::kSum, .most_ids = 4}}};
}

// Ids, some outside of their tables, and bags of up to six, some empty; the summed ones with
// factors.
struct Ids {
  std::vector<std::vector<std::int64_t>> ids, offsets;
  std::vector<float> weights;
  std::vector<FeatureIds> prefix, items;
  test::EventBatch events{kCase};

  explicit Ids(const RankingFeatures& features) {
    PhiloxStream random(5);
    const auto add = [&](const Feature& feature, std::int64_t count) {
      std::vector<std::int64_t>& own = ids.emplace_back();
      std::vector<std::int64_t>& bags = offsets.emplace_back();
      for (std::int64_t i = 0; i < count; ++i) {
        const auto many = feature.pooling == Pooling::kOne ? 1 : random.below(7);
        if (feature.pooling != Pooling::kOne && bags.empty()) bags.push_back(0);
        for (std::uint64_t j = 0; j < many; ++j) {
          const auto rows = static_cast<std::uint64_t>(features.table_rows[feature.table]);
          own.push_back(static_cast<std::int64_t>(random.below(rows + 2)) - 1);
        }
        if (!bags.empty()) bags.push_back(std::ssize(own));
      }
    };
    for (const Feature& feature : features.prefix) add(feature, std::ssize(kCase.history));
    for (const Feature& feature : features.items) add(feature, kCase.events());
    for (std::size_t i = 0; i < ids.back().size(); ++i) {
      weights.push_back(static_cast<float>(random.normal()));
    }
    for (std::size_t f = 0; f < ids.size(); ++f) {
      FeatureIds given = {
          test::view_of(std::as_const(ids[f])), test::view_of(std::as_const(offsets[f])), {}};
      if (f + 1 == ids.size()) given.weights = {weights.data(), {std::ssize(weights)}};
      (f < features.prefix.size() ? prefix : items).push_back(given);
    }
  }
  RankingBatch batch() const {
    return {.sequences = events.view(), .prefix = prefix, .items = items};
  }
};

struct Use {
  bool prefix;
  std::int64_t row, column;
  std::size_t table;
  std::int64_t id;
  double share;
};

// Every use of a row, as the features say it.
struct PlainUses {
  std::vector<Use> uses;
  std::int64_t outside = 0;

  PlainUses(const RankingFeatures& features, const RankingBatch& batch) {
    const auto add = [&](bool prefix) {
      const auto& all = prefix ? features.prefix : features.items;
      const std::int64_t count = prefix ? std::ssize(kCase.history) : kCase.events();
      for (std::int64_t row = 0; row < count; ++row) {
        for (std::size_t f = 0; f < all.size(); ++f) {
          const FeatureIds& given = (prefix ? batch.prefix : batch.items)[f];
          const auto b = static_cast<std::size_t>(row);
          if (prefix && kCase.history[b] + kCase.targets[b] < all[f].least_events) continue;
          const bool bag = all[f].pooling != Pooling::kOne;
          const std::int64_t begin = bag ? given.offsets(row) : row;
          std::int64_t end = bag ? given.offsets(row + 1) : row + 1;
          end = std::min(end, begin + all[f].most_ids);
          const double equal =
              all[f].pooling == Pooling::kMean ? 1.0 / static_cast<double>(end - begin) : 1.0;
          for (std::int64_t i = begin; i < end; ++i) {
            const double share = given.weights.shape[0] == 0 ? equal : given.weights(i);
            const bool inside =
                given.ids(i) >= 0 && given.ids(i) < features.table_rows[all[f].table];
            outside += inside ? 0 : 1;
            uses.push_back({prefix, row, static_cast<std::int64_t>(f) * kWidth, all[f].table,
                            inside ? given.ids(i) : 0, share});
          }
        }
      }
    };
    add(true);
    add(false);
  }
};

struct Results {
  Tensor slots, gradients;
};

template <class T>
Results run(int threads, const Ids& ids, const std::vector<Tensor>& tables, const Tensor& dslots) {
  const Context ctx({.threads = threads});
  FeatureRows feature_rows(ctx, features_of(), std::ssize(kCase.history) + 1, kCase.events() + 2);
  for (int round = 0; round < 2; ++round) feature_rows.read(ctx, ids.batch());
  Tensor rows(dtype_of<T>(), {feature_rows.num_rows(), kWidth});
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const auto own = feature_rows.ids(t);
    EXPECT_LE(own.shape[0], feature_rows.most_ids(t));
    for (std::int64_t i = 0; i < own.shape[0]; ++i) {
      std::copy_n(&tables[t].view<T, 2>()(own(i), 0), kWidth,
                  &rows.view<T, 2>()(feature_rows.first_row(t) + i, 0));
    }
  }
  Results out = {Tensor(dtype_of<T>(), {feature_rows.num_slots(), kWidth}),
                 Tensor(DType::kF32, {feature_rows.num_rows(), kWidth})};
  test::poison<T>(out.slots);
  test::poison<float>(out.gradients);
  feature_rows.pool<T>(ctx, rows.view<T, 2>(), out.slots.view<T, 2>());
  feature_rows.sum_gradients<T>(ctx, dslots.view<T, 2>(), out.gradients.view<float, 2>());
  return out;
}

template <class T>
void compare(double tolerance) {
  const RankingFeatures features = features_of();
  const Ids ids(features);
  const PlainUses plain(features, ids.batch());
  std::vector<Tensor> tables, sums;
  for (const std::int64_t rows : features.table_rows) {
    tables.push_back(test::random_tensor<T>({rows, kWidth}, tables.size() + 1));
    sums.emplace_back(DType::kF64, std::vector{rows, kWidth});
  }
  const std::int64_t num_slots = 3 * std::ssize(kCase.history) + 2 * kCase.events();
  const Tensor dslots = test::random_tensor<T>({num_slots, kWidth}, 9);
  const Results got = run<T>(1, ids, tables, dslots);

  const Context ctx({.threads = 1});
  FeatureRows feature_rows(ctx, features, std::ssize(kCase.history), kCase.events());
  feature_rows.read(ctx, ids.batch());
  EXPECT_EQ(feature_rows.out_of_range(), plain.outside);
  EXPECT_GT(plain.outside, 0);
  const RankingRows<const T> model =
      feature_rows.split<const T>(Rows<const T>(got.slots.view<T, 2>()));
  const RankingRows<const T> dmodel =
      feature_rows.split<const T>(Rows<const T>(dslots.view<T, 2>()));
  EXPECT_EQ(model.prefix.cols, 3 * kWidth);
  EXPECT_EQ(model.items.cols, 2 * kWidth);
  Tensor prefix(DType::kF64, {model.prefix.rows, model.prefix.cols});
  Tensor items(DType::kF64, {model.items.rows, model.items.cols});
  for (const Use& use : plain.uses) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      const Tensor& table = tables[use.table];
      (use.prefix ? prefix : items).view<double, 2>()(use.row, use.column + c) +=
          use.share * test::element(table, use.id * kWidth + c);
      const T d = (use.prefix ? dmodel.prefix : dmodel.items)(use.row, use.column + c);
      sums[use.table].view<double, 2>()(use.id, c) +=
          use.share * static_cast<double>(convert<float>(d));
    }
  }
  for (const bool of_prefix : {true, false}) {
    const Tensor& wanted = of_prefix ? prefix : items;
    const Rows<const T> rows = of_prefix ? model.prefix : model.items;
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        const double want = wanted.view<double, 2>()(r, c);
        EXPECT_NEAR(static_cast<double>(convert<float>(rows(r, c))), want,
                    tolerance * std::max(1.0, std::abs(want)));
      }
    }
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    std::vector<bool> touched(static_cast<std::size_t>(features.table_rows[t]));
    for (const Use& use : plain.uses) {
      if (use.table == t) touched[static_cast<std::size_t>(use.id)] = true;
    }
    const auto own = feature_rows.ids(t);
    EXPECT_EQ(own.shape[0], std::count(touched.begin(), touched.end(), true));
    for (std::int64_t i = 0; i < own.shape[0]; ++i) {
      EXPECT_TRUE(touched[static_cast<std::size_t>(own(i))]);
      for (std::int64_t c = 0; c < kWidth; ++c) {
        EXPECT_NEAR((got.gradients.view<float, 2>()(feature_rows.first_row(t) + i, c)),
                    (sums[t].view<double, 2>()(own(i), c)), 1e-5);
      }
    }
  }
  for (const int threads : {2, 4}) {
    const Results other = run<T>(threads, ids, tables, dslots);
    EXPECT_TRUE(test::same_bits(other.slots, got.slots));
    EXPECT_TRUE(test::same_bits(other.gradients, got.gradients));
  }
}

TEST(FeatureRows, AreThePlainSumsOfRowsAndOfGradients) { compare<float>(1e-6); }
TEST(FeatureRows, AreThePlainSumsInBf16) { compare<bf16>(1.0 / 128); }

// Half the squares of all slots, in double, by the uses: its gradient by the slots is the slots.
double half_squares(const PlainUses& plain, const std::vector<std::vector<double>>& tables) {
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, double> slots;
  for (const Use& use : plain.uses) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      slots[{use.prefix, use.row, use.column + c}] +=
          use.share * tables[use.table][static_cast<std::size_t>(use.id * kWidth + c)];
    }
  }
  double sum = 0;
  for (const auto& [slot, value] : slots) sum += value * value / 2;
  return sum;
}

// Weights of ids included: features_of's last one has them.
TEST(FeatureRows, GradientsOfRowsAreCentralDifferences) {
  const RankingFeatures features = features_of();
  const Ids ids(features);
  const PlainUses plain(features, ids.batch());
  std::vector<Tensor> tables;
  std::vector<std::vector<double>> exact;
  for (const std::int64_t rows : features.table_rows) {
    tables.push_back(test::random_tensor<float>({rows, kWidth}, tables.size() + 1));
    std::vector<double>& own = exact.emplace_back();
    for (std::int64_t i = 0; i < rows * kWidth; ++i) own.push_back(test::element(tables.back(), i));
  }
  const std::int64_t num_slots = 3 * std::ssize(kCase.history) + 2 * kCase.events();
  const Tensor none = Tensor(DType::kF32, {num_slots, kWidth});
  const Tensor slots = std::move(run<float>(1, ids, tables, none).slots);
  const Tensor gradients = std::move(run<float>(1, ids, tables, slots).gradients);
  const Context ctx({.threads = 1});
  FeatureRows feature_rows(ctx, features, std::ssize(kCase.history), kCase.events());
  feature_rows.read(ctx, ids.batch());
  constexpr double kStep = 1e-4;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const auto own = feature_rows.ids(t);
    for (std::int64_t i = 0; i < own.shape[0]; ++i) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        double& number = exact[t][static_cast<std::size_t>(own(i) * kWidth + c)];
        const double at = number;
        number = at + kStep;
        const double above = half_squares(plain, exact);
        number = at - kStep;
        const double difference = (above - half_squares(plain, exact)) / (2 * kStep);
        number = at;
        EXPECT_NEAR((gradients.view<float, 2>()(feature_rows.first_row(t) + i, c)), difference,
                    1e-5 * std::max(1.0, std::abs(difference)))
            << t << ": " << own(i);
      }
    }
  }
}

TEST(FeatureRows, ABatchWithoutSequencesReadsNothing) {
  const test::EventBatch none(test::EventCase{.prefix = 1});
  const Context ctx({.threads = 2});
  FeatureRows feature_rows(
      ctx, {.table_rows = {4}, .prefix = {{.name = "user"}}, .items = {{.name = "item"}}}, 2, 2);
  const std::vector<FeatureIds> empty(1);
  feature_rows.read(ctx, {.sequences = none.view(), .prefix = empty, .items = empty});
  EXPECT_EQ(feature_rows.num_rows(), 0);
  EXPECT_EQ(feature_rows.num_slots(), 0);
  feature_rows.pool<float>(ctx, {nullptr, 0, kWidth, kWidth}, {nullptr, 0, kWidth, kWidth});
}

// All features of a place in one slot; a list without features gives zeros.
TEST(FeatureRows, ASummedListIsTheSumOfItsFeatures) {
  const Context ctx({.threads = 1});
  const Ids ids(features_of());
  const std::int64_t count = kCase.events();
  const std::vector<Feature> features = features_of().items;
  const auto pooled = [&](bool summed) {
    FeatureRows feature_rows(ctx, features_of().table_rows,
                             {{{}, 3, true}, {features, count, summed}});
    const FeaturePlaces places[] = {{2, {}, nullptr, "items"}, {count, ids.items}};
    feature_rows.read(ctx, places);
    EXPECT_EQ(feature_rows.first_slot(1), 2);
    EXPECT_EQ(feature_rows.num_slots(), 2 + count * (summed ? 1 : std::ssize(features)));
    const Tensor rows = test::random_tensor<float>({feature_rows.num_rows(), kWidth}, 3);
    Tensor slots(DType::kF32, {feature_rows.num_slots(), kWidth});
    feature_rows.pool<float>(ctx, rows.view<float, 2>(), slots.view<float, 2>());
    Tensor gradients(DType::kF32, {feature_rows.num_rows(), kWidth});
    feature_rows.sum_gradients<float>(ctx, slots.view<float, 2>(), gradients.view<float, 2>());
    return slots;
  };
  const Tensor apart = pooled(false), together = pooled(true);
  for (std::int64_t c = 0; c < kWidth; ++c) {
    EXPECT_EQ((together.view<float, 2>()(1, c)), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const float first = apart.view<float, 2>()(2 + 2 * i, c);
      const float second = apart.view<float, 2>()(3 + 2 * i, c);
      EXPECT_NEAR((together.view<float, 2>()(2 + i, c)), first + second, 1e-6) << i;
    }
  }
}

// One row that everybody uses is summed by columns, the others by rows.
TEST(WeightedRows, AreTheSameBitsForAnyNumberOfThreads) {
  constexpr std::int64_t kPicks = 9000, kColumns = 150;
  const Tensor rows = test::random_tensor<float>({50, kColumns}, 1);
  const std::vector<std::int64_t> offsets = {0, 3, 8000, 8000, kPicks};
  std::vector<std::int32_t> index;
  std::vector<float> weights;
  PhiloxStream random(2);
  for (std::int64_t i = 0; i < kPicks; ++i) {
    index.push_back(static_cast<std::int32_t>(random.below(50)));
    weights.push_back(static_cast<float>(random.normal()));
  }
  const ops::RowPicks picks = {
      test::view_of(offsets), {index.data(), {kPicks}}, {weights.data(), {kPicks}}};
  std::vector<Tensor> results;
  for (const int threads : {1, 3}) {
    const Context ctx({.threads = threads});
    Tensor out(DType::kF32, {4, kColumns});
    ops::sum_weighted_rows<float, float>(ctx, rows.view<float, 2>(), picks, out.view<float, 2>());
    results.push_back(std::move(out));
  }
  EXPECT_TRUE(test::same_bits(results[0], results[1]));
  for (std::int64_t p = 0; p < 4; ++p) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      double sum = 0, size = 0;
      for (std::int64_t j = offsets[static_cast<std::size_t>(p)];
           j < offsets[static_cast<std::size_t>(p) + 1]; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double term =
            static_cast<double>(weights[at]) * rows.view<float, 2>()(std::int64_t{index[at]}, c);
        sum += term;
        size += std::abs(term);
      }
      EXPECT_NEAR((results[0].view<float, 2>()(p, c)), sum, 1e-6 * std::max(1.0, size));
    }
  }
  const Context ctx({.threads = 1});
  Tensor out(DType::kF32, {4, kColumns});
  index[7] = 50;
  EXPECT_EQ(message_of([&] {
              ops::sum_weighted_rows<float, float>(ctx, rows.view<float, 2>(), picks,
                                                   out.view<float, 2>());
            }),
            "sum_weighted_rows: pick 7 is row 50 of 50; it must be at least 0 and below that");
}

TEST(FeatureRows, SayWhatIsWrong) {
  const Context ctx({.threads = 1});
  const auto refusal = [&](auto change) {
    RankingFeatures features = features_of();
    change(features);
    return message_of([&] { FeatureRows(ctx, features, 4, 40); });
  };
  EXPECT_EQ(refusal([](RankingFeatures&) {}), "");
  EXPECT_EQ(refusal([](RankingFeatures& f) { f.items[0].table = 3; }),
            "feature 'item' reads table 3 of 3");
  EXPECT_NE(refusal([](RankingFeatures& f) { f.items[1].most_ids = 0; }).find("at least 1"),
            std::string::npos);
  EXPECT_NE(refusal([](RankingFeatures& f) { f.items[0].most_ids = 2; }).find("by sum or mean"),
            std::string::npos);
  EXPECT_NE(refusal([](RankingFeatures& f) { f.table_rows[2] = 0; }).find("row of unknown ids"),
            std::string::npos);

  const Ids ids(features_of());
  const auto bad_batch = [&](auto change, std::int64_t sequences = 4) {
    FeatureRows feature_rows(ctx, features_of(), sequences, 40);
    Ids own(features_of());
    change(own);
    return message_of([&] { feature_rows.read(ctx, own.batch()); });
  };
  EXPECT_EQ(bad_batch([](Ids&) {}), "");
  EXPECT_NE(bad_batch([](Ids&) {}, 3).find("plan for more"), std::string::npos);
  EXPECT_NE(bad_batch([](Ids& own) { own.items.pop_back(); }).find("1 features of events"),
            std::string::npos);
  EXPECT_NE(bad_batch([](Ids& own) { own.items[1].weights.shape[0] = 1; }).find(" 1 weights for "),
            std::string::npos);
  EXPECT_NE(bad_batch([](Ids& own) {
              own.prefix[2].weights = {own.weights.data(), {own.prefix[2].ids.shape[0]}};
            }).find("of rows that are summed"),
            std::string::npos);
  EXPECT_EQ(bad_batch([](Ids& own) { own.prefix[0].ids.shape[0] = 3; }),
            "feature 'user' has 3 ids for 4 sequences; give one each");
  EXPECT_EQ(bad_batch([](Ids& own) { own.prefix[0].offsets = own.prefix[2].offsets; }),
            "feature 'user' has 4 ids in bags, not ids for 4 sequences; give one each");
  EXPECT_EQ(bad_batch([](Ids& own) { own.prefix[2].offsets.shape[0] = 4; }),
            "feature 'liked' has 4 offsets for the bags of 4 sequences; give 5");
  EXPECT_NE(bad_batch([](Ids& own) {
              own.items[1].ids.shape[0] = own.items[1].weights.shape[0] = 2;
            }).find("feature 'tags': bag"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::model
