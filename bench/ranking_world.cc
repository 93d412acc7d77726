#include "bench/ranking_world.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "bench/ranking_configs.h"
#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/samples/cross_hash.h"
#include "turbogr/model/ranking_flops.h"
#include "turbogr/run/config.h"
#include "turbogr/run/ranking_setup.h"

namespace turbogr::bench {
namespace {

constexpr std::int64_t kHour = 3600;

RankingShape shape_of_config(const char* name, std::string_view text, std::int64_t cut,
                             std::int64_t most_targets) {
  const run::Config config = run::parse_config(text, std::string(name) + ".toml",
                                               {{"embedding.cut", std::to_string(cut)}});
  const run::RankingSetup setup = run::ranking_shape(config);
  return {.name = name,
          .model = run::ranking_options(config, setup, most_targets),
          .features = setup.features,
          .whole_rows = setup.named_rows};
}

// How often the tracks of a music service are heard, by rank: power laws between published points
// (877,168 tracks; 1 % of them take half of all listens), stretched over any number of rows.
class Popularity {
 public:
  Popularity() {
    for (std::size_t i = 0; i + 1 < std::size(kPoints); ++i) {
      const auto [r, c] = kPoints[i];
      const auto [next, less] = kPoints[i + 1];
      const double power = 1 + std::log(less / c) / std::log(next / r);
      below_.push_back(below_.back() + c * r / power * (std::pow(next / r, power) - 1));
      powers_.push_back(power);
    }
  }
  std::int64_t draw(PhiloxStream& random, std::int64_t rows) const {
    const double listens = random.uniform() * below_.back();
    std::size_t i = 0;
    while (i + 2 < below_.size() && below_[i + 1] <= listens) ++i;
    const auto [r, c] = kPoints[i];
    const double inside = (listens - below_[i]) * powers_[i] / (c * r);
    const double rank = r * std::pow(1 + inside, 1 / powers_[i]);
    const double share = (rank - 1) / kPoints[std::size(kPoints) - 1].first;
    return std::min(rows - 1, static_cast<std::int64_t>(share * static_cast<double>(rows)));
  }

 private:
  static constexpr std::pair<double, double> kPoints[] = {
      {1, 41'984},   {10, 29'602}, {1'000, 4'700},  {8'772, 1'150}, {64'105, 100},
      {219'292, 12}, {438'584, 3}, {564'000, 1.01}, {877'169, 0.99}};
  std::vector<double> below_ = {0}, powers_;
};

// Any function of the item that spreads: its artist, its album, its category.
std::int64_t belongs_to(std::int64_t item, std::int64_t rows) {
  return static_cast<std::int64_t>(
      (static_cast<std::uint64_t>(item) * 0x9e3779b97f4a7c15ULL >> 20) %
      static_cast<std::uint64_t>(rows));
}

}  // namespace

RankingShape dlrmv4_shape(std::int64_t cut) {
  RankingShape shape = shape_of_config("dlrmv4", kDlrmv4Config, cut, 1);
  shape.nominal_length = 4096;
  return shape;
}

RankingShape dlrmv3_shape(std::int64_t cut) {
  RankingShape shape = shape_of_config("dlrmv3", kDlrmv3Config, cut, 2'048);
  shape.nominal_length = 6'700 + 2'048;
  shape.timed = false;
  return shape;
}

std::vector<embedding::TableOptions> tables_of(const RankingShape& shape, DType dtype) {
  std::vector<embedding::TableOptions> tables;
  for (const std::int64_t rows : shape.features.table_rows) {
    tables.push_back({.rows = rows,
                      .width = shape.model.embedding,
                      .optimiser = embedding::SparseOptimiser::kAdaGrad,
                      .start = 1 / std::sqrt(static_cast<double>(rows)),
                      .seed = tables.size() + 1,
                      .dtype = dtype});
  }
  return tables;
}

RankingLengths filled_lengths(const RankingShape& shape, std::int64_t sequences, double fill) {
  TGR_CHECK(fill > 0 && fill < 1, "lengths of a fill of ", fill, "; give a share between 0 and 1");
  const std::int64_t longest = shape.model.max_length - shape.model.prefix - 1;
  const auto with = [&](double power) {
    RankingLengths lengths;
    for (std::int64_t b = 0; b < sequences; ++b) {
      const double place = (static_cast<double>(b) + 0.5) / static_cast<double>(sequences);
      lengths.history.push_back(
          static_cast<std::int64_t>(static_cast<double>(longest) * std::pow(place, power)));
      lengths.targets.push_back(1);
    }
    return lengths;
  };
  double low = 0, high = 64;  // the higher the power, the shorter they are
  for (int round = 0; round < 60; ++round) {
    const double middle = (low + high) / 2;
    const RankingLengths lengths = with(middle);
    const model::RankingFlops flops = model::ranking_step_flops(shape.model, shape.nominal_length,
                                                                {lengths.history, lengths.targets});
    (flops.real / flops.nominal > fill ? low : high) = middle;
  }
  return with(high);
}

MadeUpBatch::MadeUpBatch(const RankingShape& shape, const RankingLengths& lengths,
                         std::uint64_t seed)
    : prefix_ids_(shape.features.prefix.size()), item_ids_(shape.features.items.size()) {
  const std::vector<std::int64_t>& rows = shape.features.table_rows;
  const Popularity popularity;
  PhiloxStream random(seed);
  std::int64_t targets = 0;
  for (std::size_t b = 0; b < lengths.history.size(); ++b) {
    const std::int64_t history = lengths.history[b], m = lengths.targets[b];
    const auto user_table = shape.features.prefix[0].table;
    const auto user =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows[user_table])));
    std::int64_t time = shape.timed ? 10'000'000 : 1;
    for (std::int64_t j = 0; j < history + m; ++j) {
      const std::int64_t item = popularity.draw(random, rows[shape.features.items[0].table]);
      for (std::size_t f = 0; f < item_ids_.size(); ++f) {
        item_ids_[f].push_back(f == 0 ? item
                                      : belongs_to(item, rows[shape.features.items[f].table]));
      }
      if (shape.timed && j < history) {
        time += static_cast<std::int64_t>(std::exp(random.uniform() * std::log(20'000.0))) - 1;
      }
      times_.push_back(time);
      actions_.push_back(1u << random.below(static_cast<std::uint64_t>(shape.model.actions)));
    }
    prefix_ids_[0].push_back(user);
    const std::int64_t target = item_ids_[0].back(), hour = time / kHour % 24;
    for (std::size_t f = 1; f < prefix_ids_.size(); ++f) {
      prefix_ids_[f].push_back(
          data::cross_row(std::array{user, target, hour}, rows[shape.features.prefix[f].table], f));
    }
    for (std::int64_t i = 0; i < shape.model.prefix + history + m; ++i) {
      row_keys_.push_back(static_cast<std::uint64_t>(b) << 20 | static_cast<std::uint64_t>(i));
    }
    offsets_.push_back(offsets_.back() + shape.model.prefix + history + m);
    num_targets_.push_back(m);
    targets += m;
  }
  for (std::int64_t i = 0; i < targets * shape.model.tasks; ++i) {
    labels_.push_back(random.uniform() < 0.6 ? 1.0f : 0.0f);
    weights_.push_back(1.0f);
  }
  const auto list = [](const auto& values) {
    using Value = typename std::decay_t<decltype(values)>::value_type;
    return View<const Value, 1>{values.data(), {std::ssize(values)}};
  };
  for (const auto& ids : prefix_ids_) prefix_.push_back({list(ids), {}});
  for (const auto& ids : item_ids_) items_.push_back({list(ids), {}});
  view_ = {.sequences = {.offsets = list(offsets_),
                         .num_prefix = shape.model.prefix,
                         .num_targets = list(num_targets_),
                         .times = list(times_)},
           .actions = list(actions_),
           .row_keys = list(row_keys_),
           .prefix = prefix_,
           .items = items_,
           .labels = {labels_.data(), targets, shape.model.tasks, shape.model.tasks},
           .weights = {weights_.data(), targets, shape.model.tasks, shape.model.tasks}};
}

}  // namespace turbogr::bench
