// The layers of a FuXi ranking model against their definition, written out in double: what comes
// out for targets, from what the first layer read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/ranking_case.h"

namespace turbogr::model {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix matrix_of(Rows<const double> rows) {
  Matrix out;
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    out.emplace_back(rows.row(r), rows.row(r) + rows.cols);
  }
  return out;
}

std::vector<double> times(const std::vector<double>& x, const Matrix& w) {
  std::vector<double> y(w[0].size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < y.size(); ++j) y[j] += x[i] * w[i][j];
  }
  return y;
}

std::vector<double> rms_normed(std::vector<double> x) {
  double square = 0;
  for (const double each : x) square += each * each;
  const double root = std::sqrt(square / static_cast<double>(x.size()) + 1e-6);
  for (double& each : x) each /= root;
  return x;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

std::size_t bucket_of(std::int64_t gap) {
  const double magnitude = std::max(1.0, std::abs(static_cast<double>(gap)));
  return static_cast<std::size_t>(std::clamp(std::floor(std::log(magnitude) / 0.301), 0.0, 128.0));
}

// One sequence: tokens from `begin` on, in the order prefix, history, targets.
struct Sequence {
  std::size_t begin, prefix, history, targets;
  std::vector<std::int64_t> times;  // of events

  std::size_t length() const { return prefix + history + targets; }
  std::size_t before() const { return prefix + history; }
  bool sees(std::size_t i, std::size_t j, bool full_prefix) const {
    if (i == j) return true;
    if (j >= before()) return false;
    return j < i || (full_prefix && i < prefix);
  }
  std::int64_t place(std::size_t i) const {  // targets stand at one
    return static_cast<std::int64_t>(std::min(i, before()));
  }
  std::int64_t key_time(std::size_t i) const { return i < prefix ? times[0] : times[i - prefix]; }
  std::int64_t query_time(std::size_t i) const {
    return key_time(i < prefix || i >= before() ? i : i + 1);
  }
};

class Reference {
 public:
  Reference(const RankingOptions& options, const ParameterSet<double>& parameters)
      : o_(options), parameters_(parameters) {}

  Matrix layer(int index, const std::vector<Sequence>& sequences, const Matrix& x) const {
    const std::string name = "layers." + std::to_string(index) + ".";
    const Matrix projection = two(name + "projection"), output = two(name + "output"),
                 gates = two(name + "feed_forward_gates"), last = two(name + "feed_forward_output");
    const std::vector<double> bias = one(name + "output_bias"), position = one(name + "position"),
                              time = one(name + "time");
    const auto heads = static_cast<std::size_t>(o_.heads), dq = static_cast<std::size_t>(o_.dq),
               dv = static_cast<std::size_t>(o_.dv);
    Matrix projected;
    for (const std::vector<double>& row : x) {
      projected.push_back(times(rms_normed(row), projection));
      for (double& each : projected.back()) each = silu(each);
    }
    Matrix y = x;
    for (const Sequence& s : sequences) {
      for (std::size_t i = 0; i < s.length(); ++i) {
        std::vector<double> attended(heads * 3 * dv);
        const std::vector<double>& own = projected[s.begin + i];
        for (std::size_t j = 0; j < s.length(); ++j) {
          if (!s.sees(i, j, o_.full_prefix)) continue;
          const std::vector<double>& other = projected[s.begin + j];
          for (std::size_t h = 0; h < heads; ++h) {
            const std::size_t v = 3 * heads * dv + h * dv, q = 4 * heads * dv + h * dq,
                              k = q + heads * dq;
            double score = 0;
            for (std::size_t c = 0; c < dq; ++c) score += own[q + c] * other[k + c];
            const std::size_t middle = position.size() / 2;
            const double weights[3] = {position[middle + static_cast<std::size_t>(s.place(j)) -
                                                static_cast<std::size_t>(s.place(i))],
                                       time[bucket_of(s.query_time(i) - s.key_time(j))],
                                       silu(score) / o_.norm_length};
            for (std::size_t map = 0; map < 3; ++map) {
              for (std::size_t c = 0; c < dv; ++c) {
                attended[(h * 3 + map) * dv + c] += weights[map] * other[v + c];
              }
            }
          }
        }
        std::vector<double> mixed = rms_normed(attended);
        for (std::size_t c = 0; c < mixed.size(); ++c) mixed[c] *= own[c];
        const std::vector<double> change = times(mixed, output);
        std::vector<double>& row = y[s.begin + i];
        for (std::size_t c = 0; c < row.size(); ++c) row[c] += change[c] + bias[c];
        const std::vector<double> gated = times(rms_normed(row), gates);
        std::vector<double> hidden(gated.size() / 2);
        for (std::size_t c = 0; c < hidden.size(); ++c) {
          hidden[c] = silu(gated[c]) * gated[hidden.size() + c];
        }
        const std::vector<double> more = times(hidden, last);
        for (std::size_t c = 0; c < row.size(); ++c) row[c] += more[c];
      }
    }
    return y;
  }

 private:
  const Tensor& value(const std::string& name) const {
    for (int i = 0; i < parameters_.size(); ++i) {
      if (parameters_.spec(i).name == name) return parameters_.value(i);
    }
    throw Error("no parameter " + name);
  }
  Matrix two(const std::string& name) const { return matrix_of(value(name).view<double, 2>()); }
  std::vector<double> one(const std::string& name) const {
    const auto view = value(name).view<double, 1>();
    return {view.data, view.data + view.shape[0]};
  }

  RankingOptions o_;
  const ParameterSet<double>& parameters_;
};

TEST(FuxiRanking, LayersAreWhatTheirDefinitionSays) {
  const test::EventCase cases[] = {{.prefix = 0, .history = {5, 0, 9, 1}, .targets = {2, 1, 3, 4}},
                                   {.prefix = 3, .history = {5, 0, 9, 1}, .targets = {2, 1, 3, 4}},
                                   {.prefix = 3, .history = {0, 7}, .targets = {1, 1}}};
  for (const test::EventCase& c : cases) {
    for (const bool full : {false, true}) {
      RankingOptions options = test::small_ranking(ModelKind::kFuxi);
      options.prefix = c.prefix;
      options.full_prefix = full;
      test::RankingBatch<double> batch(c, options);
      batch.step.training = false;
      if (*std::max_element(c.targets.begin(), c.targets.end()) == 1) batch.step.most_targets = 1;
      const Context ctx({.threads = 2});
      RankingModel<double> model(ctx, options, batch.memory());
      model.initialise(ctx, 5);
      // As they start, tables are so small that no error in them would show.
      for (int i = 0; i < model.parameters().size(); ++i) {
        const std::string& name = model.parameters().spec(i).name;
        if (!name.ends_with(".position") && !name.ends_with(".time")) continue;
        model.parameters().value(i) =
            test::random_tensor<double>(model.parameters().value(i).shape(), 40);
      }
      model.refresh(ctx);
      model.forward(ctx, batch.step, batch.rows());

      std::vector<Sequence> sequences;
      std::size_t event = 0, token = 0;
      for (std::size_t b = 0; b < c.history.size(); ++b) {
        Sequence s = {token,
                      static_cast<std::size_t>(c.prefix),
                      static_cast<std::size_t>(c.history[b]),
                      static_cast<std::size_t>(c.targets[b]),
                      {}};
        for (std::size_t i = 0; i < s.history + s.targets; ++i) {
          s.times.push_back(batch.events.times[event++]);
        }
        token += s.length();
        sequences.push_back(s);
      }
      const Reference reference(options, model.parameters());
      Matrix x = matrix_of(model.layer_input(0, c.tokens()));
      for (int layer = 0; layer < options.layers; ++layer) x = reference.layer(layer, sequences, x);
      const Rows<const double> got = model.target_rows(batch.step.num_targets);
      std::int64_t target = 0;
      for (const Sequence& s : sequences) {
        for (std::size_t t = 0; t < s.targets; ++t, ++target) {
          for (std::int64_t k = 0; k < options.width; ++k) {
            const double wanted = x[s.begin + s.before() + t][static_cast<std::size_t>(k)];
            EXPECT_NEAR(got(target, k), wanted, 1e-11 * std::max(1.0, std::abs(wanted)))
                << "target " << target << " of a prefix of " << c.prefix;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace turbogr::model
