// When to stop: after `patience` evaluations in a row without a better validation figure.
//
//   EarlyStopping stopping(config.train.patience);
//   stopping.add(score);
//   if (stopping.out_of_patience()) ...
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace turbogr::run {

class EarlyStopping {
 public:
  explicit EarlyStopping(std::int64_t patience) : patience_(patience) {}  // 0: never

  void add(double score);  // of one evaluation; higher is better
  bool out_of_patience() const { return patience_ > 0 && since_best_ >= patience_; }

  std::optional<double> best() const { return best_; }
  std::int64_t since_best() const { return since_best_; }

  // A resumed run counts on. A state without the two keys leaves the count at its beginning, as a
  // checkpoint of a run without patience does. The patience itself is the config's.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  std::int64_t patience_;
  std::optional<double> best_;
  std::int64_t since_best_ = 0;
};

}  // namespace turbogr::run
