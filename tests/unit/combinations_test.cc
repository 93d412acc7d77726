#include "turbogr/run/combinations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "turbogr/run/config_keys.h"

namespace turbogr::run {
namespace {

using test::message_of;

const RunLayout kRanks = {.world = 4, .groups = 2, .sharded = true};

// What is said where the config is read, or by `layout`.
std::string refusal(const std::vector<Override>& set, const RunLayout& layout) {
  return message_of([&] { check_combinations(parse_config("", "test.toml", set), layout); });
}

TEST(Combinations, WhatDoesNotGoTogetherIsSaidWithWhatToDo) {
  const Override gpu = {"train.device", "cuda"};
  const Override host = {"embedding.memory", "host"};
  const Override bf16 = {"embedding.dtype", "bf16"};
  const Override f16 = {"negatives.dtype", "f16"};
  const Override average = {"dist.replicas", "average"};
  const struct {
    Override one;
    std::vector<Override> others;
    std::string message;
    bool alone = true;  // one rank is refused it, too
  } cases[] = {
      {host,
       {{"train.device", "cpu"}},
       "embedding.memory = \"host\" keeps a GPU's item table in the host's memory, where "
       "train.device = \"cpu\" has it anyway; leave it out, or train on cuda"},
      {bf16,
       {f16},
       "negatives.dtype = \"f16\" halves what a table in f32 sends, and embedding.dtype is "
       "\"bf16\"; use one of the two"},
      {bf16,
       {gpu, host},
       "embedding.dtype = \"bf16\" halves a table on the device, and embedding.memory = \"host\" "
       "keeps it off; use embedding.dtype = \"f32\", or embedding.memory = \"device\""},
      {{"tables.q.dtype", "f16"},
       {gpu, host, {"tables.q.rows", "10"}},
       "tables.q.dtype = \"f16\" halves a table on the device, and embedding.memory = \"host\" "
       "keeps it off; use tables.q.dtype = \"f32\", or embedding.memory = \"device\""},
      {bf16,
       {average},
       "embedding.dtype = \"bf16\", and dist.replicas = \"average\": the mean of rows in 16 bits "
       "would lose what each group has learnt; use dist.replicas = \"exact\", or embedding.dtype = "
       "\"f32\"",
       false},
      {{"tables.q.dtype", "f16"},
       {average, {"tables.q.rows", "10"}},
       "tables.q.dtype = \"f16\", and dist.replicas = \"average\": the mean of rows in 16 bits "
       "would lose what each group has learnt; use dist.replicas = \"exact\", or tables.q.dtype = "
       "\"f32\"",
       false},
      {{"negatives.half_table", "true"},
       {f16},
       "negatives.half_table keeps an f16 copy of a table that one rank holds; leave it out where "
       "several share it",
       false},
      {average,
       {{"train.schedule", "exact_prefetch"}},
       "train.schedule = \"exact_prefetch\" fetches rows ahead, which would miss that "
       "dist.replicas = \"average\" changes every row now and then; use dist.replicas = \"exact\", "
       "or train.schedule = \"serial\" or \"overlap\""},
      {average, {{"train.schedule", "semi_async"}}, "train.schedule = \"semi_async\" fetches rows"},
      {{"embedding.decay", "l2"},
       {{"embedding.optimiser", "adamw"}},
       "embedding.decay = \"l2\" adds the decay to AdaGrad's gradients, and embedding.optimiser = "
       "\"adamw\"; use adagrad, or embedding.decay = \"decoupled\""},
      {{"tables.q.optimiser", "adamw"},
       {{"embedding.optimiser", "adagrad"}, {"embedding.decay", "l2"}, {"tables.q.rows", "10"}},
       "embedding.decay = \"l2\" adds the decay to AdaGrad's gradients, and tables.q.optimiser = "
       "\"adamw\"; use adagrad"},
      {average,
       {{"embedding.optimiser", "adagrad"}, {"embedding.decay", "l2"}},
       "embedding.decay = \"l2\" puts the decay beside gradients that dist.replicas = \"average\" "
       "scales otherwise than a mean over all; use dist.replicas = \"exact\""},
      {gpu,
       {{"dist.rows", "f16"}},
       "dist.rows = \"f16\" with train.device = \"cuda\": GPUs send rows as f32 or bf16; use "
       "\"f32\" or \"bf16\"",
       false},
      {{"dist.link", "staged"},
       {{"train.device", "cpu"}},
       "dist.link = \"staged\" says how GPUs reach each other, and train.device is \"cpu\"; leave "
       "it out, or train on cuda"},
  };
  for (const auto& each : cases) {
    std::vector<Override> both = each.others;
    both.push_back(each.one);
    EXPECT_EQ(refusal(both, kRanks).substr(0, each.message.size()), each.message);
    EXPECT_EQ(refusal(both, {}) != "", each.alone) << each.message;
    if (each.others[0].key == "train.device") continue;  // the device is what is missing
    EXPECT_EQ(refusal(each.others, kRanks), "") << each.message;
  }
}

TEST(Combinations, ADefaultRunsEverywhere) {
  EXPECT_EQ(refusal({}, {}), "");
  EXPECT_EQ(refusal({}, kRanks), "");
  EXPECT_EQ(refusal({{"embedding.dtype", "bf16"}}, kRanks), "");
  EXPECT_EQ(refusal({{"embedding.memory", "host"}, {"train.device", "cuda"}}, kRanks), "");
  EXPECT_EQ(refusal({{"dist.replicas", "average"}, {"train.schedule", "overlap"}}, kRanks), "");
}

}  // namespace
}  // namespace turbogr::run
