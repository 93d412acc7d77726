// Lines in the form of MLPerf's logging package (":::MLLOG {...}"), so that its tools read a run of
// the DLRMv4 shape: mllog.txt in the run folder, with run.mllog = true. They are the run's own
// values. No log of generated data, and none without a submission, is a result of that benchmark;
// the log says "unofficial".
//
//   MlLog log("runs/dlrmv4/mllog.txt", /*resumed=*/false);
//   log.begin(mllog_facts(config, world_size, train_samples, eval_samples));
//   log.start();
//   log.evaluation(/*samples=*/229376, /*auc=*/0.61);
//   log.stop(/*samples=*/458752, /*reached=*/false);
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "turbogr/core/file.h"
#include "turbogr/run/config.h"

namespace turbogr::run {

inline constexpr double kMlLogTarget = 0.75;  // the AUC that ends a run of DLRMv4

// What a log says of its run, in the words of the rules of DLRMv4.
struct MlLogFacts {
  std::string organisation = "unofficial: DLRMv4 shape, no submission";
  std::string platform = "unofficial";
  std::int64_t batch = 0, micro_batch = 0, parts = 1, sequence_length = 0;
  std::int64_t train_samples = 0, eval_samples = 0;
  std::string dense_optimiser, table_optimiser;
  double lr = 0, table_lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, clip = 0;
  std::int64_t warmup = 0;
  double eval_share = 0;           // of the training samples, between evaluations
  std::string products, exchange;  // the coarsest number formats
};
MlLogFacts mllog_facts(const Config& config, int world, std::int64_t train_samples,
                       std::int64_t eval_samples);

class MlLog {
 public:
  // A resumed run goes on in its file: the lines of its beginning are there.
  MlLog(const std::string& path, bool resumed);

  void begin(const MlLogFacts& facts);
  void start();  // the first step follows
  // After so many samples of training; between blocks of it.
  void evaluation(std::int64_t samples, double auc);
  void stop(std::int64_t samples, bool reached);

 private:
  void line(std::string_view type, std::string_view key, const nlohmann::json& value,
            const nlohmann::json& metadata);
  void point(std::string_view key, const nlohmann::json& value);
  void samples_line(std::string_view type, std::string_view key, std::int64_t samples);

  std::string path_;
  FileHandle file_;
};

}  // namespace turbogr::run
