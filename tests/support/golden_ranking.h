// What tests/fixtures/ranking holds: a ranking step made by an independent implementation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/tolerance.h"
#include "turbogr/checkpoint/safetensors.h"
#include "turbogr/core/tensor.h"
#include "turbogr/model/ranking_options.h"

namespace turbogr::test {

inline constexpr std::int64_t kWidthOfRows = 12;

struct GoldenPrefix {
  std::string table;
  std::int64_t least_length = 0;  // events below which the sequence has no such feature
};

// What a fixture holds, beside its file.
struct Shape {
  std::string name;
  std::vector<GoldenPrefix> prefix;
  std::vector<std::string> items;  // tables, which give the features their names
  std::int64_t actions, tasks;
};

inline const Shape kManyTargets = {"v3", {{"user", 10}}, {"item", "category"}, 5, 2};
inline const Shape kManyPrefixes = {"v4",
                                    {{"uid"},
                                     {"user_x_artist"},
                                     {"user_x_album"},
                                     {"user_x_hour"},
                                     {"item_x_hour"},
                                     {"artist_x_hour"},
                                     {"user_x_is_organic"},
                                     {"user_x_artist_x_hour"}},
                                    {"item", "artist", "album"},
                                    3,
                                    1};

// Under the folder the test runs in, where a program was carried to another machine; else in the
// source tree.
inline std::string fixture_path(const std::string& name) {
  const std::filesystem::path inside =
      std::filesystem::path("tests") / "fixtures" / "ranking" / (name + ".safetensors");
  if (std::filesystem::exists(inside)) return inside.string();
  return (std::filesystem::path(source_dir()) / inside).string();
}

class Golden {
 public:
  explicit Golden(const Shape& shape) : file_(fixture_path(shape.name)) {}

  const checkpoint::SafetensorsFile& file() const { return file_; }
  Tensor tensor(const std::string& name) const {
    const checkpoint::TensorEntry& entry = file_.at(name);
    Tensor tensor(entry.dtype, entry.shape);
    std::copy_n(file_.data(entry), tensor.bytes(), tensor.data());
    return tensor;
  }
  std::vector<std::int64_t> integers(const std::string& name) const {
    const Tensor values = tensor(name);
    const auto* data = reinterpret_cast<const std::int64_t*>(values.data());
    return {data, data + values.size()};
  }
  double number(const std::string& name) const { return element(tensor(name), 0); }

 private:
  checkpoint::SafetensorsFile file_;
};

inline model::RankingOptions options_of(const Shape& shape) {
  return {.embedding = kWidthOfRows,
          .prefix = std::ssize(shape.prefix),
          .item_features = std::ssize(shape.items),
          .actions = shape.actions,
          .tasks = shape.tasks,
          .layers = 2,
          .width = 16,
          .heads = 2,
          .dq = 6,
          .dv = 10,
          .hidden = 20,
          .head_hidden = 24,
          .positions = 15,
          .time_buckets = 40,
          .max_length = 64,
          .input_dropout = 0,
          .dropout = 0};
}

}  // namespace turbogr::test
