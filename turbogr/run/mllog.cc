#include "turbogr/run/mllog.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

namespace turbogr::run {
namespace {

using Line = nlohmann::ordered_json;

// The rules' words for number formats.
std::string format_word(const std::string& dtype) {
  return dtype == "bf16" ? "bfloat16" : dtype == "f16" ? "fp16" : "fp32";
}

std::string coarser_word(const std::string& a, const std::string& b) {
  return format_word(a == "f32" ? b : a);
}

std::int64_t milliseconds_now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

MlLogFacts mllog_facts(const Config& config, int world, std::int64_t train_samples,
                       std::int64_t eval_samples) {
  MlLogFacts facts;
  facts.batch = config.train.batch;
  facts.parts = config.train.accumulate;
  facts.micro_batch = std::max<std::int64_t>(1, config.train.batch / world / facts.parts);
  facts.sequence_length = config.model.norm_length;
  facts.train_samples = train_samples;
  facts.eval_samples = eval_samples;
  facts.dense_optimiser = config.optim.weight_decay == 0 ? "Adam" : "AdamW";
  facts.table_optimiser =
      config.embedding.optimiser == "adagrad" ? "RowWiseAdagrad" : config.embedding.optimiser;
  facts.lr = config.optim.lr;
  facts.table_lr = config.embedding.lr;
  facts.beta1 = config.optim.beta1;
  facts.beta2 = config.optim.beta2;
  facts.eps = config.optim.eps;
  facts.weight_decay = config.optim.weight_decay;
  facts.clip = config.optim.clip;
  facts.warmup = config.optim.warmup;
  // The rules ask for 0.001, of which whole steps are made: four places are what they mean.
  const double samples = static_cast<double>(config.eval.every_steps * config.train.batch);
  facts.eval_share =
      std::round(1e4 * samples / static_cast<double>(std::max<std::int64_t>(1, train_samples))) /
      1e4;
  facts.products = format_word(config.train.dtype);
  facts.exchange = coarser_word(config.dist.rows, config.dist.gradients);
  return facts;
}

MlLog::MlLog(const std::string& path, bool resumed)
    : path_(path), file_(path, O_WRONLY | O_CREAT | O_APPEND | (resumed ? 0 : O_TRUNC)) {}

void MlLog::line(std::string_view type, std::string_view key, const nlohmann::json& value,
                 const nlohmann::json& metadata) {
  Line fields = {{"namespace", ""},    {"time_ms", milliseconds_now()},
                 {"event_type", type}, {"key", key},
                 {"value", value},     {"metadata", metadata}};
  fields["metadata"]["file"] = "turbogr";
  fields["metadata"]["lineno"] = 0;
  const std::string text = ":::MLLOG " + fields.dump() + "\n";
  write_all(file_.get(), std::as_bytes(std::span(text)), path_);
}

void MlLog::point(std::string_view key, const nlohmann::json& value) {
  line("POINT_IN_TIME", key, value, nlohmann::json::object());
}

void MlLog::samples_line(std::string_view type, std::string_view key, std::int64_t samples) {
  line(type, key, nullptr, {{"samples_count", samples}});
}

void MlLog::begin(const MlLogFacts& facts) {
  point("cache_clear", true);
  line("INTERVAL_START", "init_start", nullptr, nlohmann::json::object());
  point("submission_benchmark", "dlrmv4");
  point("submission_org", facts.organisation);
  point("submission_platform", facts.platform);
  point("submission_division", "closed");  // whose rules say what the shape is
  point("submission_status", "research");
  point("global_batch_size", facts.batch);
  point("micro_batch_size", facts.micro_batch);
  point("gradient_accumulation_steps", facts.parts);
  point("train_samples", facts.train_samples);
  point("eval_samples", facts.eval_samples);
  point("max_sequence_length", facts.sequence_length);
  point("opt_name", facts.dense_optimiser);
  point("opt_base_learning_rate", facts.lr);
  point("opt_adam_beta_1", facts.beta1);
  point("opt_adam_beta_2", facts.beta2);
  point("opt_adam_epsilon", facts.eps);
  point("opt_weight_decay", facts.weight_decay);
  point("opt_gradient_clip_norm", facts.clip);
  point("opt_sparse_name", facts.table_optimiser);
  point("opt_sparse_base_learning_rate", facts.table_lr);
  point("opt_learning_rate_warmup_steps", facts.warmup);
  point("opt_learning_rate_warmup_start_lr", 0.0);
  point("eval_every_data_pct", facts.eval_share);
  point("lowest_numerical_precision_in_linear", facts.products);
  point("lowest_numerical_precision_in_attn", facts.products);
  point("lowest_numerical_precision_in_comm", facts.exchange);
  for (const char* parallel : {"tensor", "pipeline", "context", "expert"}) {
    point(std::string(parallel) + "_parallelism", 1);
  }
  point("config_filename", "config.toml");
}

void MlLog::start() {
  line("INTERVAL_END", "init_stop", nullptr, nlohmann::json::object());
  line("INTERVAL_START", "run_start", nullptr, nlohmann::json::object());
  samples_line("INTERVAL_START", "block_start", 0);
}

void MlLog::evaluation(std::int64_t samples, double auc) {
  samples_line("INTERVAL_END", "block_stop", samples);
  samples_line("INTERVAL_START", "eval_start", samples);
  line("POINT_IN_TIME", "eval_accuracy", auc, {{"samples_count", samples}});
  samples_line("INTERVAL_END", "eval_stop", samples);
  samples_line("INTERVAL_START", "block_start", samples);
}

void MlLog::stop(std::int64_t samples, bool reached) {
  samples_line("INTERVAL_END", "block_stop", samples);
  line("INTERVAL_END", "run_stop", nullptr,
       {{"status", reached ? "success" : "aborted"}, {"samples_count", samples}});
}

}  // namespace turbogr::run
