#include "turbogr/plan/histories.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string_view>

#include "turbogr/core/check.h"
#include "turbogr/core/progress.h"
#include "turbogr/data/length_table.h"
#include "turbogr/data/store.h"
#include "turbogr/data/synth_world.h"
#include "turbogr/data/yambda/yambda_world.h"
#include "turbogr/run/run_options.h"

namespace turbogr::plan {
namespace {

constexpr std::string_view kWorlds[] = {"kuairand27k", "movielens", "yambda"};
constexpr std::int64_t kKuairandUsers = 27'285;
constexpr std::int64_t kKuairandItems = 32'038'725;  // of the published log
constexpr std::int64_t kYambdaUsers = 1'000'000;     // of Yambda-5B
constexpr std::int64_t kYambdaItems = 9'390'623;

class StoreHistories : public Histories {
 public:
  StoreHistories(const std::string& folder, const run::Config& config) : store_(folder) {
    windows_ = data::make_windows(store_, run::train_loader_options(config, store_).windows);
    TGR_CHECK(!windows_.empty(), "'", folder,
              "' has no user with enough events to plan by: wanted two, one to read and one to "
              "predict, besides those that data.holdout = \"",
              config.data.holdout,
              "\" keeps back; give --data another store, kuairand27k, movielens or yambda");
    num_items_ = store_.num_items();
    num_users_ = store_.num_users();
    text_ = fmt::format("{}: {} users, {} items", folder, grouped_text(store_.num_users()),
                        grouped_text(num_items_));
  }

  void read(const data::Window& window, std::span<std::int64_t> items) const override {
    store_.read_items(window.first_event, items);
  }
  const data::Store* store() const override { return &store_; }

 private:
  data::Store store_;
};

// Events of a history that are held out: of validation and test.
std::int64_t held_out_events(const run::Config& config) {
  return config.data.holdout == "validation_test" ? 2 : 1;
}

data::SynthOptions world_options(const std::string& like, std::int64_t users,
                                 std::int64_t max_length, std::uint64_t seed) {
  data::SynthOptions options;
  options.like = like;
  options.users = users;
  options.max_length = max_length;
  options.seed = seed;
  if (like == "kuairand27k") options.items = kKuairandItems;
  return options;
}

// A made-up world of KuaiRand's or MovieLens's kind; `data synth` writes the same users.
class WorldHistories : public Histories {
 public:
  WorldHistories(const std::string& like, std::int64_t users, const run::Config& config)
      : world_(world_options(like, users, config.data.max_length + 1 + held_out_events(config),
                             static_cast<std::uint64_t>(config.run.seed))) {
    for (std::int64_t user = 0; user < world_.num_users(); ++user) {
      const std::int64_t length =
          std::min(config.data.max_length, world_.length(user) - 1 - held_out_events(config));
      if (length < 1) continue;
      windows_.push_back({.first_event = 0,
                          .length = static_cast<std::int32_t>(length),
                          .user = static_cast<std::int32_t>(user)});
    }
    num_items_ = world_.catalogue().num_items();
    num_users_ = world_.num_users();
    text_ = fmt::format("a made-up world like {}: {} users, {} items", like,
                        grouped_text(world_.num_users()), grouped_text(num_items_));
  }

  void read(const data::Window& window, std::span<std::int64_t> items) const override {
    thread_local data::SynthHistory history;
    world_.generate(window.user, history);
    const auto from = static_cast<std::size_t>(window.first_event);
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i] = static_cast<std::int64_t>(history.items[from + i]);
    }
  }

 private:
  data::SynthWorld world_;
};

// Listeners of a world like Yambda-5B; `data synth --like yambda` writes the same users.
class ListenerHistories : public Histories {
 public:
  ListenerHistories(std::int64_t users, const run::Config& config)
      : world_({.users = users,
                .items = kYambdaItems,
                .max_length = config.data.max_length + 1 + held_out_events(config),
                .seed = static_cast<std::uint64_t>(config.run.seed)}) {
    for (std::int64_t user = 0; user < world_.num_users(); ++user) {
      const std::int64_t events = world_.offset(user + 1) - world_.offset(user);
      const std::int64_t length =
          std::min(config.data.max_length, events - 1 - held_out_events(config));
      if (length < 1) continue;
      windows_.push_back({.first_event = 0,
                          .length = static_cast<std::int32_t>(length),
                          .user = static_cast<std::int32_t>(user)});
    }
    num_items_ = kYambdaItems;
    num_users_ = world_.num_users();
    text_ = fmt::format("a made-up world like yambda: {} users, {} items",
                        grouped_text(world_.num_users()), grouped_text(num_items_));
  }

  void read(const data::Window& window, std::span<std::int64_t> items) const override {
    thread_local data::YambdaHistory history;
    world_.generate(window.user, history);
    for (std::size_t i = 0; i < items.size(); ++i) items[i] = history.items[i];
  }

 private:
  data::YambdaWorld world_;
};

std::unique_ptr<Histories> made_up_world(const std::string& like, std::int64_t users,
                                         const run::Config& config) {
  if (like == "yambda") return std::make_unique<ListenerHistories>(users, config);
  return std::make_unique<WorldHistories>(like, users, config);
}

// Lengths as given, items of users of a world like KuaiRand, each long enough.
class LengthHistories : public Histories {
 public:
  LengthHistories(const std::string& path, const run::Config& config)
      : lengths_(data::read_length_table(path)),
        world_(world_options("kuairand27k", std::ssize(lengths_), config.data.max_length + 1,
                             static_cast<std::uint64_t>(config.run.seed))) {
    for (std::size_t user = 0; user < lengths_.size(); ++user) {
      windows_.push_back(
          {.first_event = 0,
           .length = static_cast<std::int32_t>(std::min(config.data.max_length, lengths_[user])),
           .user = static_cast<std::int32_t>(user)});
    }
    num_items_ = world_.catalogue().num_items();
    num_users_ = std::ssize(lengths_);
    text_ = fmt::format("lengths of {}: {} users, {} made-up items", path,
                        grouped_text(std::ssize(lengths_)), grouped_text(num_items_));
  }

  // One made-up user after another until there are enough.
  void read(const data::Window& window, std::span<std::int64_t> items) const override {
    thread_local data::SynthHistory history;
    std::size_t at = 0;
    for (std::int64_t user = window.user; at < items.size(); ++user) {
      world_.generate(user % world_.num_users(), history);
      for (std::size_t i = 0; i < history.items.size() && at < items.size(); ++i) {
        items[at++] = static_cast<std::int64_t>(history.items[i]);
      }
    }
  }

 private:
  std::vector<std::int64_t> lengths_;
  data::SynthWorld world_;
};

}  // namespace

double Histories::epoch_tokens() const {
  double tokens = 0;
  for (const data::Window& window : windows_) tokens += window.length;
  return tokens;
}

std::unique_ptr<Histories> open_histories(const std::string& data, const HistoryOptions& options) {
  const run::Config& config = options.config;
  if (std::find(std::begin(kWorlds), std::end(kWorlds), data) != std::end(kWorlds)) {
    const std::int64_t users = data == "yambda" ? kYambdaUsers : kKuairandUsers;
    auto histories = made_up_world(data, users, config);
    const double tokens = histories->epoch_tokens();
    const double wanted = options.least_tokens;
    if (tokens >= wanted) return histories;
    const double many = std::ceil(1.02 * static_cast<double>(users) * wanted / tokens);
    constexpr double kMostUsers = std::numeric_limits<std::int32_t>::max();
    TGR_CHECK(many <= kMostUsers, "the steps of this plan have ", wanted, " tokens, those of ",
              many, " made-up users; at most ", kMostUsers,
              " can be drawn: lower --steps, --nodes, --gpus or train.tokens");
    return made_up_world(data, static_cast<std::int64_t>(many), config);
  }
  if (std::filesystem::is_directory(data)) return std::make_unique<StoreHistories>(data, config);
  TGR_CHECK(std::filesystem::exists(data), "there is no store, world or file '", data,
            "'; give --data the folder of a store, kuairand27k, movielens, yambda or a CSV file of "
            "lengths");
  return std::make_unique<LengthHistories>(data, config);
}

}  // namespace turbogr::plan
