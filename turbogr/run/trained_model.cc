#include "turbogr/run/trained_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "turbogr/checkpoint/device_tensors.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/core/output_file.h"
#include "turbogr/eval/retrieval_vectors.h"
#include "turbogr/model/buffers.h"
#include "turbogr/ops/dense/l2_normalize.h"
#include "turbogr/run/feature_setup.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/retrieval_setup.h"
#include "turbogr/run/serving_rows.h"
#include "turbogr/run/vocabularies.h"

namespace turbogr::run {
namespace {

using data::Batch;

constexpr std::int64_t kItemsAtOnce = 4096;  // on their way out

}  // namespace

namespace {

namespace fs = std::filesystem;

// What a path stands for.
enum class Kind : char {
  kFault = '!',
  kPointer = 'p',
  kCheckpoint = 'c',
  kBest = 'b',
  kFolder = 'f'
};
struct Choice {
  Kind kind;
  std::string path;  // or what is wrong
};

Choice choose(const std::string& path, Pick pick) {
  if (!fs::exists(path)) {
    return {Kind::kFault, "no checkpoint at '" + path + "'; give a run folder or a checkpoint"};
  }
  if (fs::is_regular_file(path)) return {Kind::kPointer, path};  // `latest` or `best`
  if (!fs::is_directory(path)) {
    return {Kind::kFault, "'" + path + "' is no checkpoint; give a run folder or one"};
  }
  if (fs::exists(fs::path(path) / "manifest.json")) return {Kind::kCheckpoint, path};
  const fs::path inside = fs::path(path) / "checkpoints";
  const std::string folder = fs::exists(inside) ? inside.string() : path;
  if (pick == Pick::kNewest) return {Kind::kFolder, folder};
  const std::string best = checkpoint::best_checkpoint(folder);
  if (!best.empty()) return {Kind::kBest, best};
  if (fs::exists(folder + "/best")) {
    log::warn("'{}/best' names no checkpoint that is there; taking the newest one", folder);
  }
  return {Kind::kFolder, folder};
}

}  // namespace

checkpoint::Checkpoint open_checkpoint(dist::Communicator& world, const std::string& path,
                                       Pick pick) {
  std::string own;
  if (world.rank() == 0) {
    const Choice choice = choose(path, pick);
    own = static_cast<char>(choice.kind) + choice.path;
  }
  const std::string chosen = world.all_gather_text(own)[0];
  const Choice choice = {static_cast<Kind>(chosen.at(0)), chosen.substr(1)};
  TGR_CHECK(choice.kind != Kind::kFault, choice.path);
  if (choice.kind == Kind::kPointer) {
    return checkpoint::open_pointed_checkpoint(world, choice.path);
  }
  if (choice.kind == Kind::kCheckpoint) {
    return checkpoint::open_named_checkpoint(world, choice.path);
  }
  std::string folder = choice.path;
  if (choice.kind == Kind::kBest) {
    folder = fs::path(choice.path).parent_path().string();
    try {
      return checkpoint::open_named_checkpoint(world, choice.path);
    } catch (const Error& error) {
      if (world.rank() == 0) {
        log::warn("{}; taking the newest one instead of the best", error.what());
      }
    }
  }
  return checkpoint::open_newest_checkpoint(world, folder, /*fall_back=*/true);
}

checkpoint::Checkpoint open_checkpoint(const std::string& path, Pick pick) {
  return open_checkpoint(*dist::make_self(), path, pick);
}

data::Store open_store(const Config& config, const std::string& given) {
  const std::string& folder = given.empty() ? config.data.store : given;
  TGR_CHECK(!given.empty() || std::filesystem::exists(folder), "the store '", folder,
            "' that the checkpoint was trained on is not there; if it has moved, give --store "
            "FOLDER");
  return data::Store(folder);
}

// What is the same for every number format.
struct TrainedModel::Scorer {
  virtual ~Scorer() = default;
  virtual void set_candidates(std::vector<std::int64_t> items) = 0;
  virtual std::vector<std::vector<eval::Recommendation>> recommend(const Batch& batch,
                                                                   std::int64_t k,
                                                                   eval::SeenItems seen) = 0;
  virtual eval::RankingMetrics evaluate(data::Loader& loader,
                                        const eval::EvaluateOptions& options) = 0;
  virtual Tensor user_vectors(const Batch& batch) = 0;
  virtual void item_vectors(std::int64_t first, View<float, 2> out) = 0;
  std::int64_t capacity = 0, prefix = 0;  // tokens; those before a history
};

template <class T>
struct TrainedModel::ScorerOf : TrainedModel::Scorer {
  Context ctx;
  const train::RetrievalOptions training;
  model::Model<T> model;
  std::unique_ptr<embedding::RowSource<T>> table;
  eval::RowEncoder<T> rows;
  eval::UserVectors<T> queries;
  std::optional<eval::TopItems<T>> best;  // made when it is first asked for

  ScorerOf(const Config& config, const checkpoint::Checkpoint& checkpoint, const data::Store& store,
           std::int64_t tokens, int threads, dist::Communicator& world, Weights weights)
      : ctx({.device = device_of(config), .threads = threads}),
        training(options_of(config, store, tokens)),
        model(ctx, training.model, {.capacity = room(tokens), .inference = true}),
        table(serving_rows<T>(ctx, world, config, train::all_tables(training, store.num_items()))),
        rows(ctx, *table, training.features, room(tokens)),
        queries(ctx, model, rows, training.parts, room(tokens)) {
    capacity = room(tokens);
    prefix = training.features.num_prefix();
    load(checkpoint, store, weights);
  }

  static train::RetrievalOptions options_of(const Config& config, const data::Store& store,
                                            std::int64_t tokens) {
    train::RetrievalOptions options =
        retrieval_options(config, num_signals(store), /*total_steps=*/0, tokens);
    add_features(retrieval_features(config, store), tokens, options);
    return options;
  }

  // So many events, each of which may be a history with tokens before it.
  std::int64_t room(std::int64_t events) const {
    return events * (1 + training.features.num_prefix());
  }

  void load(const checkpoint::Checkpoint& checkpoint, const data::Store& store, Weights weights) {
    const bool same_items = weights == Weights::kTrained && has_same_items(checkpoint, store);
    if (!same_items) table->initialise(ctx);  // rows that are not read keep these
    if (weights == Weights::kFresh) {
      model.initialise(ctx, training.seed);
      return;
    }
    std::vector<NamedTensor> dense;
    dense.reserve(static_cast<std::size_t>(model.parameters().size()));
    for (int i = 0; i < model.parameters().size(); ++i) {
      dense.push_back(named(model.parameters().spec(i).name, model.parameters().value(i)));
    }
    checkpoint::read_tensors(ctx, checkpoint, dense);
    model.refresh(ctx);
    for (std::size_t t = 0; t < training.features.tables.size(); ++t) {
      checkpoint::read_table(ctx, checkpoint, saved_table_name(training.features.table_names[t]),
                             checkpoint::TableParts::kWeights, table->sharding(1 + t),
                             table->shard_index(), table->shard(1 + t));
    }
    if (same_items) {
      checkpoint::read_table(ctx, checkpoint, "items", checkpoint::TableParts::kWeights,
                             table->sharding(0), table->shard_index(), table->shard(0));
      return;
    }
    std::int64_t known = read_known_rows(ctx, checkpoint, store, table->sharding(0),
                                         table->shard_index(), table->shard(0));
    if (table->group() != nullptr) table->group()->all_reduce({&known, 1}, dist::Reduce::kSum);
    TGR_CHECK(known > 0, "checkpoint '", checkpoint.folder(), "' knows none of the ",
              store.num_items(), " items of the store '", store.folder().string(),
              "'; use the store it was trained on, or one with the same item ids");
    if (known < store.num_items()) {
      log::warn("{} of the {} items of '{}' are new to the checkpoint: it has no vectors of them",
                store.num_items() - known, store.num_items(), store.folder().string());
    }
  }

  eval::TopItems<T>& best_items() {
    if (!best) best.emplace(ctx, rows);
    return *best;
  }

  void set_candidates(std::vector<std::int64_t> chosen) override {
    best.reset();
    if (chosen.empty()) return;
    const std::int64_t all = table->sharding(0).rows();
    const bool fine =
        chosen.front() >= 0 && chosen.back() < all &&
        std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal<>()) == chosen.end();
    TGR_CHECK(fine, chosen.size(), " candidates of ", all,
              " items; give them in ascending order and each once");
    best.emplace(ctx, rows, chosen);
  }

  std::vector<std::vector<eval::Recommendation>> recommend(const Batch& batch, std::int64_t k,
                                                           eval::SeenItems seen) override {
    queries.compute(ctx, batch);
    eval::Exclusions excluded;
    if (seen == eval::SeenItems::kDrop) excluded = {&batch.seen_items, &batch.seen_offsets};
    return best_items().compute(ctx, queries, k, excluded);
  }

  eval::RankingMetrics evaluate(data::Loader& loader,
                                const eval::EvaluateOptions& options) override {
    return eval::evaluate<T>(ctx, {model, *table, training.features, training.parts, capacity},
                             loader, options);
  }

  // Rows of the device, scaled to length one.
  void unit_vectors(Rows<const T> from, View<float, 2> out) {
    Tensor unit(dtype_of<T>(), {from.rows, from.cols}, ctx.device());
    Tensor inverse(DType::kF32, {from.rows}, ctx.device());
    ops::l2_normalize<T>(ctx, from, {}, unit.template view<T, 2>(),
                         inverse.template view<float, 1>());
    const Tensor there = to_host(ctx, unit);
    for (std::int64_t i = 0; i < out.size(); ++i) {
      out.data[i] = convert<float>(reinterpret_cast<const T*>(there.data())[i]);
    }
  }

  Tensor user_vectors(const Batch& batch) override {
    queries.compute(ctx, batch);
    Tensor vectors(DType::kF32, {batch.num_sequences(), training.model.width});
    unit_vectors(queries.rows(), vectors.view<float, 2>());
    return vectors;
  }

  void item_vectors(std::int64_t first, View<float, 2> out) override {
    const std::int64_t width = out.shape[1];
    Tensor memory(dtype_of<T>(), {std::min(kItemsAtOnce, out.shape[0]), width}, ctx.device());
    for (std::int64_t done = 0; done < out.shape[0]; done += kItemsAtOnce) {
      std::vector<std::int64_t> ids(
          static_cast<std::size_t>(std::min(kItemsAtOnce, out.shape[0] - done)));
      std::iota(ids.begin(), ids.end(), first + done);
      const Rows<T> block = model::first_rows<T>(memory, std::ssize(ids));
      rows.items(ctx, data::view_of(ids), block);
      unit_vectors(block, {out.data + done * width, {block.rows, width}});
    }
  }
};

void check_finds_items(const Config& config, const checkpoint::Checkpoint& checkpoint) {
  TGR_CHECK(
      !config.ranks(), "checkpoint '", checkpoint.folder(),
      "' is of the ranking task, which judges items that are given rather than finding them; "
      "use `turbogr rank --checkpoint RUN --user U --items A,B` for scores and `turbogr eval` "
      "for figures, or train one with task = \"retrieval\" to find items");
}

TrainedModel::TrainedModel(const checkpoint::Checkpoint& checkpoint, const data::Store& store,
                           int threads, dist::Communicator& world, Weights weights,
                           std::int64_t most_tokens)
    : config_(parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml")),
      store_(store) {
  check_finds_items(config_, checkpoint);
  config_.train.threads = threads;
  if (!kWithCuda || device_memory().total == 0) config_.train.device = "cpu";
  check_run(config_, store);
  check_vocabularies(checkpoint, config_, store);
  const std::int64_t tokens = std::max(most_tokens, config_.data.max_length);
  if (config_.train.dtype == "bf16") {
    scorer_ = std::make_unique<ScorerOf<bf16>>(config_, checkpoint, store, tokens, threads, world,
                                               weights);
  } else {
    scorer_ = std::make_unique<ScorerOf<float>>(config_, checkpoint, store, tokens, threads, world,
                                                weights);
  }
}

TrainedModel::~TrainedModel() = default;

void TrainedModel::set_candidates(std::vector<std::int64_t> items) {
  scorer_->set_candidates(std::move(items));
}

std::vector<std::vector<eval::Recommendation>> TrainedModel::recommend(const Batch& batch,
                                                                       std::int64_t k,
                                                                       eval::SeenItems seen) {
  return scorer_->recommend(batch, k, seen);
}

eval::RankingMetrics TrainedModel::evaluate(data::Split split, const eval::EvaluateOptions& options,
                                            const Share& share) {
  data::LoaderOptions loading =
      eval_loader_options(config_, store_, split, scorer_->capacity, share);
  loading.plan.budget = data::BatchBudget::tokens(scorer_->capacity, scorer_->prefix);
  data::Loader loader(store_, loading);
  return scorer_->evaluate(loader, options);
}

Tensor TrainedModel::user_vectors(const Batch& batch) { return scorer_->user_vectors(batch); }
void TrainedModel::item_vectors(std::int64_t first, View<float, 2> out) {
  scorer_->item_vectors(first, out);
}

}  // namespace turbogr::run
