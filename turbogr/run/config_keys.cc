#include "turbogr/run/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/nearest_name.h"
#include "turbogr/data/holdout.h"
#include "turbogr/run/config_entries.h"

namespace turbogr::run {
namespace {

using rules::anything;
using rules::at_least;
using rules::below_one;
using rules::between;
using rules::not_negative;
using rules::one_of;
using rules::positive;

ConfigRule share() {
  return {[](const ConfigValue& value) {
            const double number = std::get<double>(value);
            return number >= 0.0 && number <= 1.0;
          },
          "from 0 to 1"};
}

ConfigRule fresh_spread() {
  return {[](const ConfigValue& value) {
            const double number = std::get<double>(value);
            return number > 0.0 && number <= kLargestInit;
          },
          fmt::format("more than 0, {} at most", kLargestInit)};
}

ConfigRule holdout_word() {
  return {[](const ConfigValue& value) {
            try {
              const data::Holdout holdout(std::get<std::string>(value));
              return true;
            } catch (const Error&) {
              return false;
            }
          },
          "test, validation_test, last:P%, last:V%,P%, time:T, time:V,T or time:T..E, T a date "
          "such as 2022-04-30 or a number in the store's unit"};
}

ConfigRule metric_word() {
  return {[](const ConfigValue& value) {
            const std::string& word = std::get<std::string>(value);
            // No evaluation gives a loss; configs of old checkpoints may name it all the same.
            if (word == "mrr" || word == "loss") return true;
            const std::string figure = word.substr(word.rfind('.') + 1);
            for (const char* known :
                 {"auc", "gauc", "gauc_by_targets", "ne", "accuracy", "mse", "mae"}) {
              if (figure == known) return true;
            }
            const std::size_t at = word.find('@');
            if (at == std::string::npos || at + 1 == word.size()) return false;
            return (word.starts_with("hr@") || word.starts_with("ndcg@")) &&
                   word.find_first_not_of("0123456789", at + 1) == std::string::npos;
          },
          "hr@K, ndcg@K or mrr; ranking: auc, gauc, gauc_by_targets, ne, accuracy, mse, mae, "
          "or TASK.auc and so on"};
}

ConfigRule cutoffs() {
  return {[](const ConfigValue& value) {
            const auto& list = std::get<std::vector<std::int64_t>>(value);
            return !list.empty() &&
                   std::all_of(list.begin(), list.end(), [](std::int64_t k) { return k >= 1; });
          },
          "not empty, each at least 1"};
}

ConfigRule parts_of_three() {
  return {[](const ConfigValue& value) {
            const auto& list = std::get<std::vector<std::int64_t>>(value);
            const auto fits = [](std::int64_t part) { return part >= 0 && part <= 1 << 20; };
            return list.empty() ||
                   (list.size() == 3 && std::all_of(list.begin(), list.end(), fits));
          },
          "three whole numbers of 0 to 1048576, or none"};
}

template <class Section, class Field>
ConfigKey key(std::string_view name, Section Config::*section, Field Section::*field,
              ConfigRule rule, std::string_view help) {
  return {std::string(name),
          [=](const Config& config) { return ConfigValue(config.*section.*field); },
          [=](Config& config, ConfigValue value) {
            config.*section.*field = std::get<Field>(std::move(value));
          },
          std::move(rule), help};
}

// The name is spelt from the field, so the two cannot part.
#define TGR_KEY(section, field, rule, help) \
  key(#section "." #field, &Config::section, &decltype(Config::section)::field, rule, help)

std::vector<ConfigKey> make_keys() {
  return {
      {"task", [](const Config& config) { return ConfigValue(config.task); },
       [](Config& config, ConfigValue value) { config.task = std::get<std::string>(value); },
       one_of({"retrieval", "ranking"}),
       "what is learned: the next item among all (retrieval), or what people do with items they "
       "are shown (ranking)"},

      TGR_KEY(data, store, anything(), "folder written by `turbogr data prepare` or `synth`"),
      TGR_KEY(
          data, holdout, holdout_word(),
          "what is kept from training: the last event (test), the last two, all from a date on "
          "(time:2022-04-30), or each user's last events (last:20%); with two, the first is where "
          "validation begins or its share (time:2022-04-28,2022-04-30, last:10%,20%); "
          "time:T..E ends the test before E; ranking: test and validation_test keep the last "
          "samples.targets events of each"),
      TGR_KEY(data, max_length, between(1, 1 << 20),
              "longest sequence S, in events; ranking: longest history before the targets"),
      TGR_KEY(data, history, one_of({"last", "windows"}),
              "of a longer history: the last S events, or all of it cut into windows"),
      TGR_KEY(data, shuffle, anything(), "a new order each epoch, from run.seed"),
      TGR_KEY(data, workers, between(1, 1024), "threads that make batches"),
      TGR_KEY(data, prefetch, between(1, 1024), "batches made ahead"),

      TGR_KEY(samples, builder, one_of({"blocks", "requests", "last", "anchors"}),
              "ranking, which events are targets together: blocks of samples.targets, those of one "
              "user and time (requests), each user's last ones, or every event with an anchor "
              "signal alone (anchors)"),
      TGR_KEY(samples, targets, between(1, 1 << 16), "blocks, last: targets of a sample"),
      TGR_KEY(samples, actions, anything(),
              "signals that a history shows as actions, by name; none named: all of the store"),
      TGR_KEY(samples, history, one_of({"all", "split"}),
              "what a held-out target's history may hold: all before it, or nothing of its own "
              "split, as if it were judged when the split began"),
      TGR_KEY(samples, sort_batches, between(0, 1 << 20),
              "samples with histories of like length together: each epoch is shuffled, sorted by "
              "that inside chunks of so many batches, and the batches shuffled; 0: not sorted"),
      TGR_KEY(samples, order, one_of({"user", "time"}),
              "with data.shuffle = false: user by user, or in time"),
      TGR_KEY(samples, window, at_least(0),
              "order in time: seconds of a window, inside of which it goes user by user; 0: sample "
              "by sample"),
      TGR_KEY(samples, whole_batches, anything(),
              "windows: the last samples of a window are left out where they fill no train.batch"),
      TGR_KEY(samples, anchor, anything(),
              "anchors: signals any of which makes an event an anchor; none named: every event"),
      TGR_KEY(samples, least_history, at_least(0),
              "anchors: earlier events that the user must have"),
      TGR_KEY(samples, lookback, at_least(1), "anchors: events before it that are looked at"),
      TGR_KEY(samples, per_action, at_least(1),
              "anchors: the last so many events with each of samples.actions make the history"),
      TGR_KEY(samples, target_time, one_of({"own", "last"}),
              "when a target stands in its sequence: at its own time, or at that of the last event "
              "before it, as the published DLRMv4 has it; clock.hour and clock.day are its own"),

      TGR_KEY(model, kind, one_of({"hstu", "fuxi"}), "architecture"),
      TGR_KEY(model, layers, between(1, 1024), "number of layers"),
      TGR_KEY(model, width, between(1, 65536), "width D of a token and of an item's row"),
      TGR_KEY(model, heads, between(1, 1024), "attention heads H"),
      TGR_KEY(model, dq, between(0, 4096), "width of a query or key head; 0: width / heads"),
      TGR_KEY(model, dv, between(0, 4096), "width of a value head; 0: width / heads"),
      TGR_KEY(model, ffn, positive(), "FuXi: feed-forward width as a multiple of the model's"),
      TGR_KEY(model, dropout, below_one(), "share of elements dropped in training"),
      TGR_KEY(model, bias, one_of({"none", "position", "time", "both"}),
              "relative bias inside the attention, FuXi: its maps; ranking: of FuXi alone"),
      TGR_KEY(model, time_unit, one_of({"seconds", "milliseconds"}),
              "unit of the gaps that the time bias sorts into buckets"),
      TGR_KEY(model, norm_length, at_least(0),
              "constant the attention is divided by; 0: data.max_length + 11, in ranking "
              "data.max_length"),
      TGR_KEY(model, alpha, positive(), "scale on query . key"),
      TGR_KEY(model, silu, one_of({"all", "u"}), "SiLU on all four projections, or on U only"),
      TGR_KEY(model, affine, anything(), "norms with a learned weight and bias"),
      TGR_KEY(model, concat, anything(), "HSTU: project [U, a, U*a] instead of U*a"),
      TGR_KEY(model, norm_heads, anything(),
              "HSTU: what attention made is normed head by head, not over all heads"),
      TGR_KEY(model, window, at_least(0), "events a token sees back; 0: all"),
      TGR_KEY(model, prefix, at_least(0),
              "first events of a sequence that see all of it and are always seen; wants targets"),
      TGR_KEY(model, targets, at_least(0),
              "last events of a sequence, unseen by others: they alone predict; 0: all predict"),
      TGR_KEY(model, actions, anything(), "add an embedding of the action signals to the input"),
      TGR_KEY(model, temperature, positive(), "divides the cosine in the loss"),
      TGR_KEY(model, output, one_of({"id", "item"}),
              "retrieval: candidates are rows of the item table, or with the features of the item "
              "added, so that items that were never trained are found by these"),
      TGR_KEY(model, features, one_of({"named", "store"}),
              "retrieval: without any [features.X] a token is its item's row alone, or has all "
              "features of items that the store has"),
      TGR_KEY(model, embedding, between(1, 65536), "ranking: width E of the rows of all tables"),
      TGR_KEY(model, hidden, at_least(0),
              "ranking: hidden width of the MLPs that make tokens; 0: model.width"),
      TGR_KEY(model, head_hidden, at_least(0),
              "ranking: hidden width of the item tower and the head; 0: model.width"),
      TGR_KEY(model, positions, between(2, 1 << 24), "ranking: rows of the position table"),
      TGR_KEY(model, time_buckets, between(1, 1 << 24), "ranking: buckets of the time table"),
      TGR_KEY(model, time_bucket, one_of({"sqrt", "log"}),
              "ranking: a bucket of the time table begins at 60 k^2 seconds before the last event, "
              "or at 60 e^k"),
      TGR_KEY(model, input_dropout, below_one(), "ranking: share of the input dropped in training"),
      TGR_KEY(model, action_scale, positive(),
              "ranking: standard deviation of the action tables' start"),
      TGR_KEY(model, prefix_mask, one_of({"causal", "full"}),
              "ranking: prefix tokens see what is before them, or all of prefix and history"),
      TGR_KEY(model, post, one_of({"time", "layer", "l2"}),
              "ranking: what becomes of the layers' result at a target: a linear layer of it and "
              "the clock, then a norm; a norm; or length 1"),
      TGR_KEY(model, normaliser, one_of({"length", "batch"}),
              "ranking: attention is divided by model.norm_length, or by the longest history and "
              "most targets of the batch, so that scores depend on who shares it"),

      TGR_KEY(train, epochs, at_least(0),
              "passes over the data; 0: no limit (the smaller of epochs and steps ends the run)"),
      TGR_KEY(train, steps, at_least(0),
              "total steps, those before a resume included; 0: no limit"),
      TGR_KEY(train, patience, at_least(0),
              "evaluations in a row without a better eval.metric (validation split) that end the "
              "run; 0: never"),
      TGR_KEY(train, batch, at_least(0),
              "sequences a step over all ranks; 0: train.tokens decides, or 128"),
      TGR_KEY(train, tokens, at_least(0), "tokens a step and rank at most; 0: train.batch decides"),
      TGR_KEY(train, accumulate, between(1, 65536), "parts a step's batch is computed in"),
      TGR_KEY(train, device, one_of({"cpu", "cuda"}),
              "where the model runs; cuda needs a build made with `make cuda`"),
      TGR_KEY(
          train, schedule, one_of({"auto", "serial", "overlap", "exact_prefetch", "semi_async"}),
          "how the stages of a step overlap with those of its neighbours; auto: as far as gives "
          "the bits of serial"),
      TGR_KEY(train, delay, between(0, 1),
              "semi_async: updates of item rows a step may miss; 0: as overlap"),
      TGR_KEY(train, sync_steps, at_least(0), "semi_async: first steps, which miss none"),
      TGR_KEY(train, dtype, one_of({"f32", "bf16"}),
              "number format of the matrices; bf16 keeps f32 master weights"),
      TGR_KEY(train, products, one_of({"dtype", "fp8"}),
              "format in which layers multiply by their weights in training: train.dtype, or with "
              "bf16 eight bits (retrieval; cuda: Hopper)"),
      TGR_KEY(train, threads, between(0, 4096),
              "compute threads a rank; 0: cores / ranks of the machine"),
      TGR_KEY(train, recompute, anything(), "store less in forward, compute it again in backward"),
      TGR_KEY(train, deterministic, anything(),
              "cuda: the same bits from every run, at a price; a CPU's always are"),
      TGR_KEY(train, peak_tflops, not_negative(),
              "what MFU is measured against; 0: a GPU's published peak, or a peak measured at "
              "start, and again when steps get above it"),
      TGR_KEY(train, max_bad_steps, at_least(1),
              "steps in a row with a non-finite loss or gradient before training stops"),
      TGR_KEY(train, loss_scale, positive(), "ranking: factor on the sum of the tasks' losses"),

      TGR_KEY(dist, group, between(0, 1 << 20),
              "ranks that share one copy of the item table; 0: those of a machine, or all where "
              "machines "
              "have unequally many"),
      TGR_KEY(dist, spread, anything(),
              "groups have ranks of many machines, and replicas are on one; else the other way"),
      TGR_KEY(dist, ranks_per_node, between(0, 1 << 20),
              "play machines of so many ranks; 0: the machines there are"),
      TGR_KEY(dist, placement, one_of({"round_robin", "hash"}),
              "how rows are dealt to the ranks of a group"),
      TGR_KEY(dist, replicas, one_of({"exact", "average"}),
              "groups: sum gradients of all before each update, or average rows now and then"),
      TGR_KEY(dist, average_every, at_least(1),
              "average: steps between means; one more before each evaluation and save"),
      TGR_KEY(dist, rows, one_of({"f32", "bf16", "f16"}), "format of rows between ranks"),
      TGR_KEY(dist, gradients, one_of({"f32", "bf16"}), "format of row gradients between ranks"),
      TGR_KEY(dist, bucket, at_least(1), "bytes of dense gradients summed at a time, at least"),
      TGR_KEY(dist, balance, anything(), "share the sequences of a step out by cost"),
      TGR_KEY(dist, timeout, positive(), "seconds to wait for a rank before giving up"),
      TGR_KEY(dist, link, one_of({"auto", "nccl", "staged"}),
              "how GPUs reach each other: NCCL, or staged through host memory; auto: NCCL where "
              "every rank has a GPU of its own"),
      TGR_KEY(dist, world, between(0, 1 << 20),
              "dry runs: plan for so many ranks; 0: those there are"),

      TGR_KEY(optim, lr, positive(), "learning rate of the dense weights (AdamW)"),
      TGR_KEY(optim, beta1, below_one(), "decay of the first moment"),
      TGR_KEY(optim, beta2, below_one(), "decay of the second moment"),
      TGR_KEY(optim, eps, positive(), "added to the root of the second moment"),
      TGR_KEY(optim, weight_decay, not_negative(), "decoupled weight decay of the matrices"),
      TGR_KEY(optim, decay_vectors, anything(),
              "decay biases, norm weights and bias tables as well"),
      TGR_KEY(optim, clip, not_negative(),
              "largest global gradient norm; 0: no clipping; ranking: of the dense weights alone"),
      TGR_KEY(optim, schedule, one_of({"constant", "cosine", "linear"}),
              "learning rate after the warm-up, for both optimisers"),
      TGR_KEY(optim, warmup, at_least(0), "steps in which the learning rate rises from 0"),
      TGR_KEY(optim, final_lr, not_negative(), "where cosine and linear end, as a share of lr"),

      TGR_KEY(embedding, optimiser, one_of({"adamw", "adagrad", "sgd"}),
              "of the item table: AdamW with lazy moments, row-wise AdaGrad, SGD"),
      TGR_KEY(
          embedding, memory, one_of({"device", "host"}),
          "cuda: host keeps the item table and its state in the host's memory, for tables larger "
          "than the GPU's; rows cross the link when a step touches them"),
      TGR_KEY(embedding, cache, share(),
              "memory = \"host\": the part of the rows, those used most, that the GPU keeps copies "
              "of; one rank only"),
      TGR_KEY(
          embedding, dtype, one_of({"f32", "bf16", "f16"}),
          "of the item table's rows: bf16 and f16 take half the memory (f16: eight times finer, "
          "for weights below 65504); updates are made in f32 and rounded up or down by chance, "
          "so that small ones are not lost"),
      TGR_KEY(embedding, lr, positive(), "learning rate of the item table"),
      TGR_KEY(embedding, beta1, below_one(), "adamw: decay of the first moment"),
      TGR_KEY(embedding, beta2, below_one(), "adamw: decay of the second moment"),
      TGR_KEY(embedding, eps, positive(), "adamw, adagrad: keeps the division finite"),
      TGR_KEY(embedding, eps_place, one_of({"auto", "inside", "outside"}),
              "adagrad: eps under the root, or beside it; auto: inside in retrieval, outside in "
              "ranking"),
      TGR_KEY(embedding, weight_decay, not_negative(), "weight decay of the rows touched"),
      TGR_KEY(embedding, decay, one_of({"decoupled", "l2"}),
              "weight decay takes its share of a row by itself, or (adagrad) is added to the row's "
              "gradient, and so counts in its mean square"),
      TGR_KEY(embedding, init, fresh_spread(),
              "standard deviation of fresh rows (truncated normal); ranking: see "
              "tables.NAME.init"),
      TGR_KEY(embedding, start, one_of({"normal", "uniform"}),
              "fresh rows are drawn from a truncated normal, or evenly: between -init and init, of "
              "embedding.init or tables.NAME.init"),
      TGR_KEY(embedding, cut, at_least(1),
              "ranking: tables have 1 / cut of the rows they name, but 128 or more, and no fewer "
              "than their features' codes need; for published shapes on smaller machines"),

      TGR_KEY(negatives, count, between(1, 1 << 24), "negatives R a token, or in the shared set"),
      TGR_KEY(negatives, set, one_of({"token", "batch"}),
              "a set of its own for each token, or one a batch"),
      TGR_KEY(
          negatives, sampler, one_of({"uniform", "popularity", "in_batch", "mixed"}),
          "how negatives are drawn: evenly, by count^alpha, from the batch's positives, or all"),
      TGR_KEY(negatives, alpha, not_negative(), "popularity: power of an item's count; 0: uniform"),
      TGR_KEY(negatives, mix, parts_of_three(),
              "mixed: parts of uniform, popularity and in_batch, such as [2, 1, 1]"),
      TGR_KEY(negatives, correction, anything(),
              "take log(V q) off the logit of a negative drawn with probability q"),
      TGR_KEY(negatives, sharing, one_of({"none", "logits", "embeddings"}),
              "tokens also use their partners' negatives: the logits made, or the items"),
      TGR_KEY(negatives, sharing_factor, between(1, 4096), "tokens k that share, itself included"),
      TGR_KEY(negatives, dtype, one_of({"full", "f16"}),
              "how negatives' rows are read: as positives are, or in f16 scaled row by row"),
      TGR_KEY(negatives, half_table, anything(),
              "f16: keep the whole table's copy in it, not only the rows of a step"),
      TGR_KEY(negatives, untrained, anything(),
              "uniform draws are of all items; false: not of those that training never has as a "
              "target, which are then as good as their features say (docs/features.md)"),

      TGR_KEY(eval, every, at_least(0), "epochs between evaluations; 0: only at the end"),
      TGR_KEY(eval, every_steps, at_least(0), "steps between evaluations; 0: by epochs"),
      TGR_KEY(eval, at, cutoffs(), "K of HR@K and NDCG@K"),
      TGR_KEY(eval, metric, metric_word(), "what makes a checkpoint the best (validation split)"),
      TGR_KEY(eval, group, one_of({"user", "request"}),
              "ranking: gauc compares a user's targets with each other, or those of one request, "
              "which are the targets of one sample"),
      TGR_KEY(eval, max_users, at_least(0),
              "users evaluated during training, drawn by run.seed; 0: all"),
      TGR_KEY(eval, seen, one_of({"auto", "drop", "keep"}),
              "items a user has met before, in eval and recommend: drop takes them off the "
              "candidates, so that a target met before is a miss; auto: keep where more than a "
              "tenth of the targets are such, else drop"),

      TGR_KEY(log, every, at_least(1), "steps between lines of metrics.jsonl and of the log"),
      TGR_KEY(log, progress, one_of({"auto", "bar", "lines", "none"}),
              "auto: a bar on a terminal, lines elsewhere"),
      TGR_KEY(log, tensorboard, anything(), "also write TensorBoard events"),

      TGR_KEY(run, dir, anything(), "run folder: config, metrics, checkpoints, report"),
      TGR_KEY(run, resume, anything(), "go on from the run folder's newest checkpoint"),
      TGR_KEY(run, start_over, anything(),
              "resume: begin at step 0 where the folder has lost its checkpoints"),
      TGR_KEY(run, start_from, anything(), "checkpoint whose weights a new run starts from"),
      TGR_KEY(run, seed, at_least(0), "seed of weights, order, dropout and negatives"),
      TGR_KEY(run, trace, anything(), "write trace.json, to be opened in Perfetto"),
      TGR_KEY(run, mllog, anything(),
              "ranking: write mllog.txt, the run's figures in lines of MLPerf's logging package, "
              "for its tools; unofficial"),
      TGR_KEY(run, dry_run, anything(), "print the plan and the memory, train nothing"),

      TGR_KEY(checkpoint, every, at_least(0),
              "steps between checkpoints; 0: by epochs, and at the end"),
      TGR_KEY(checkpoint, every_epochs, at_least(0),
              "epochs between checkpoints; 0: by steps, and at the end"),
      TGR_KEY(checkpoint, keep_last, at_least(1), "newest checkpoints kept"),
      TGR_KEY(checkpoint, keep_best, at_least(0), "best checkpoints kept as well, by eval.metric"),
      TGR_KEY(checkpoint, background, anything(), "copy, then write while training goes on"),
      TGR_KEY(checkpoint, fall_back, anything(),
              "when the newest checkpoint is damaged, resume from the newest good one"),
  };
}

// No key is longer, and a name may be a whole file.
constexpr std::size_t kLongestCompared = 80;

std::string_view last_name(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

ConfigKey nearest_config_key(std::string_view name) {
  name = name.substr(0, kLongestCompared);
  const ConfigKey* nearest = nullptr;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  const auto compare = [&](const std::vector<ConfigKey>& known) {
    for (const ConfigKey& candidate : known) {
      // The right word in the wrong section is as likely as one slip of the finger.
      const bool same_word = last_name(name) == last_name(candidate.name);
      const std::size_t edits = same_word
                                    ? std::min<std::size_t>(1, edit_distance(name, candidate.name))
                                    : edit_distance(name, candidate.name);
      if (edits >= least) continue;
      least = edits;
      nearest = &candidate;
    }
  };
  // Of equally near ones the first: a name of three parts is one of an entry.
  const std::vector<ConfigKey> entries = entry_keys_like(name);
  const bool entry = std::count(name.begin(), name.end(), '.') == 2;
  if (entry) compare(entries);
  compare(config_keys());
  if (!entry) compare(entries);
  return *nearest;
}

std::string config_value_text(const ConfigValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  if (const double* number = std::get_if<double>(&value)) {
    // Shortest text that reads back as the same double; a point or exponent keeps it a TOML float.
    std::string text = fmt::format("{}", *number);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    return fmt::format("[{}]", fmt::join(*list, ", "));
  }
  std::string texts;
  const auto add = [&](const ConfigValue& each) {
    texts += (texts.empty() ? "" : ", ") + config_value_text(each);
  };
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    for (const double each : *list) add(each);
    return "[" + texts + "]";
  }
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& each : *list) add(each);
    return "[" + texts + "]";
  }
  std::string quoted = "\"";
  for (const char c : std::get<std::string>(value)) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace turbogr::run
