// What keys of a config demand of each other (config_keys.h).
#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/data/holdout.h"
#include "turbogr/run/combinations.h"
#include "turbogr/run/config_keys.h"
#include "turbogr/run/config_negatives.h"
#include "turbogr/train/negative_options.h"

namespace turbogr::run {
namespace {

void check_ranking(const Config& config) {
  TGR_CHECK(config.model.kind != "fuxi" || config.model.time_unit == "seconds",
            "task = \"ranking\" counts time in seconds, and model.time_unit is \"",
            config.model.time_unit, "\"; leave it out");
  TGR_CHECK(config.train.accumulate <= 16,
            "task = \"ranking\" computes a batch in at most 16 parts, and train.accumulate is ",
            config.train.accumulate, "; lower it, or train.batch");
  TGR_CHECK(config.train.products == "dtype",
            "train.products = \"fp8\" is of the retrieval task, and task is \"ranking\"; leave it "
            "out");
  TGR_CHECK(config.samples.window == 0 || config.samples.order == "time",
            "samples.window = ", config.samples.window,
            " is for samples.order = \"time\"; use that, or leave samples.window out");
  TGR_CHECK(
      !config.samples.whole_batches || (config.samples.window > 0 && config.train.tokens == 0),
      "samples.whole_batches = true is for windows (samples.window) in batches of train.batch "
      "samples; set both, or leave it out");
  TGR_CHECK(config.samples.sort_batches == 0 || (config.data.shuffle && config.train.tokens == 0),
            "samples.sort_batches = ", config.samples.sort_batches,
            " is for data.shuffle = true and batches of train.batch samples; use both, or leave it "
            "out");
  TGR_CHECK(config.samples.order == "user" || !config.data.shuffle,
            "samples.order = \"time\" is for data.shuffle = false; use that, or leave "
            "samples.order out");
}

}  // namespace

void resolve_config(Config& config) {
  ModelConfig& model = config.model;
  if (model.dq == 0 || model.dv == 0) {
    TGR_CHECK(model.width % model.heads == 0, "model.width = ", model.width,
              " does not divide into model.heads = ", model.heads,
              "; set model.dq and model.dv, or change one of the two");
    const std::int64_t head = model.width / model.heads;
    if (model.dq == 0) model.dq = head;
    if (model.dv == 0) model.dv = head;
  }
  if (model.norm_length == 0) {
    model.norm_length = config.data.max_length + (config.ranks() ? 0 : 11);
  }
  if (model.hidden == 0) model.hidden = model.width;
  if (model.head_hidden == 0) model.head_hidden = model.width;
  if (config.ranks()) check_ranking(config);
  TGR_CHECK(!config.run.mllog ||
                (config.ranks() && config.train.batch > 0 && config.eval.every_steps > 0),
            "run.mllog writes the lines of a ranking benchmark that counts samples; it wants task "
            "= \"ranking\", train.batch and eval.every_steps");

  TrainConfig& train = config.train;
  if (train.batch == 0 && train.tokens == 0) train.batch = 128;
  TGR_CHECK(train.epochs > 0 || train.steps > 0,
            "train.epochs and train.steps are both 0, so the run would never end; set one");
  TGR_CHECK((train.batch > 0) != (train.tokens > 0), "train.batch = ", train.batch,
            " and train.tokens = ", train.tokens,
            "; exactly one of them sizes a step, so set the other to 0");
  TGR_CHECK(train.tokens == 0 || train.tokens >= config.data.max_length,
            "train.tokens = ", train.tokens,
            " cannot hold one sequence of data.max_length = ", config.data.max_length,
            "; raise the one or lower the other");
  TGR_CHECK(train.products != "fp8" || train.dtype == "bf16",
            "train.products = \"fp8\" rounds what bf16 holds, and train.dtype is \"", train.dtype,
            "\"; set train.dtype = \"bf16\"");
  TGR_CHECK(train.products != "fp8" || !train.recompute,
            "train.products = \"fp8\" keeps its operands from forward to backward, and "
            "train.recompute is true; set one of them");
  const bool has_validation = data::Holdout(config.data.holdout).has_validation();
  TGR_CHECK(
      config.checkpoint.keep_best == 0 || has_validation,
      "checkpoint.keep_best = ", config.checkpoint.keep_best,
      " chooses by the validation split, which data.holdout = \"", config.data.holdout,
      "\" does not have; set data.holdout = \"validation_test\", \"time:V,T\" (validation from "
      "V, test from T on) or \"last:V%,P%\" (of each user's last events), or keep_best = 0");
  TGR_CHECK(
      train.patience == 0 || has_validation, "train.patience = ", train.patience,
      " goes by the validation split, which data.holdout = \"", config.data.holdout,
      "\" does not have; set data.holdout = \"validation_test\", \"time:V,T\" (validation from "
      "V, test from T on) or \"last:V%,P%\" (of each user's last events), or patience = 0");
  TGR_CHECK(train.patience == 0 || config.eval.every > 0 || config.eval.every_steps > 0,
            "train.patience = ", train.patience,
            " counts evaluations, and eval.every and eval.every_steps are both 0; set one of them "
            "or patience = 0");
  TGR_CHECK(model.prefix == 0 || model.targets > 0, "model.prefix = ", model.prefix,
            " without model.targets: a prefix token sees the whole sequence, so through it every "
            "token would see the item it has to predict; set model.targets, or model.prefix = 0");
  TGR_CHECK(
      model.prefix <= config.data.max_length - std::min(model.targets, config.data.max_length),
      "model.prefix = ", model.prefix, " and model.targets = ", model.targets,
      " leave no room in a sequence of data.max_length = ", config.data.max_length,
      "; lower one of them");
  check_combinations(config);
  run::negative_options(config.negatives);  // throws on what makes no sense together
  TGR_CHECK(!(model.kind == "fuxi" && model.concat),
            "model.concat is an option of HSTU; model.kind is fuxi: set model.concat = false");
  TGR_CHECK(!(model.kind == "fuxi" && model.norm_heads),
            "model.norm_heads is an option of HSTU; model.kind is fuxi: set model.norm_heads = "
            "false");
  TGR_CHECK(!(model.norm_heads && train.products == "fp8"),
            "train.products = \"fp8\" takes rows that one norm has made, and model.norm_heads = "
            "true has one a head; set one of them");
  TGR_CHECK(!config.run.resume || config.run.start_from.empty(),
            "run.resume goes on with the run in run.dir, run.start_from = \"",
            config.run.start_from, "\" begins another one; set only one of them");
}

}  // namespace turbogr::run
