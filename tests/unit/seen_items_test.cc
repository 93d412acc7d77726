#include "turbogr/eval/seen_items.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/eval/evaluate.h"
#include "turbogr/run/item_names.h"
#include "turbogr/run/run_options.h"
#include "turbogr/run/seen_rule.h"

namespace turbogr::eval {
namespace {

using Ints = std::vector<std::int64_t>;
using test::message_of;
using test::TemporaryFolder;

void write_store(const std::filesystem::path& path, const std::vector<Ints>& users,
                 std::int64_t items) {
  data::StoreWriter writer(path, {.time_unit = data::TimeUnit::kNone, .num_items = items});
  for (const Ints& history : users) writer.add_user({.items = history});
  writer.finish();
}

run::Config config_of(const std::string& text = "") {
  return run::parse_config("[model]\nbias = \"position\"\n" + text, "test");
}

TEST(SeenItems, AutoGoesByTheTargetsThatRepeat) {
  const TemporaryFolder folder;
  // One user in ten comes back to an item: still few. Two are many.
  for (const int repeating : {0, 1, 2}) {
    std::vector<Ints> users(10, Ints{0, 1, 2, 3});
    for (int i = 0; i < repeating; ++i) users[static_cast<std::size_t>(i)].back() = 1;
    const std::string path = folder / std::to_string(repeating);
    write_store(path, users, 4);
    run::Config config = config_of();
    EXPECT_EQ(config.eval.seen, "auto");
    const std::string why = run::resolve_seen(config, data::Store(path));
    EXPECT_EQ(config.eval.seen, repeating == 2 ? "keep" : "drop");
    EXPECT_NE(why.find(std::to_string(10 * repeating) + ".0 % of the test targets"),
              std::string::npos)
        << why;
    // What was said stays said.
    config.eval.seen = "keep";
    EXPECT_EQ(run::resolve_seen(config, data::Store(path)), "");
    EXPECT_EQ(config.eval.seen, "keep");
  }
  EXPECT_EQ(message_of([] { seen_items_from_name("auto"); }),
            "seen items 'auto'; use drop or keep");
}

TEST(SeenItems, AResumedRunKeepsItsRule) {
  run::Config was = config_of("[eval]\nseen = \"keep\"\n");
  run::Config is = config_of("[eval]\nseen = \"drop\"\n");
  EXPECT_NE(message_of([&] { run::check_same_seen(was, is); }).find("eval.seen is drop, was keep"),
            std::string::npos);
  EXPECT_EQ(run::check_same_seen(is, is), "");
  EXPECT_NE(run::check_same_seen(config_of(), is).find("eval.seen = \"drop\" from here on"),
            std::string::npos);
}

TEST(SeenItems, DropMakesARepeatedTargetAMissAndKeepRanksAll) {
  const TemporaryFolder folder;
  // Targets: 0, met before and most popular; 2, new.
  write_store(folder / "s", {{0, 1, 0}, {0, 1, 2}}, 4);
  const data::Store store(folder / "s");
  const run::Config config = config_of("[data]\nholdout = \"test\"\n");
  const std::vector<float> counts = {10, 9, 8, 1};
  const auto figures = [&](SeenItems seen) {
    data::Loader loader(store, run::eval_loader_options(config, store, data::Split::kTest, 100));
    RankingMetrics metrics =
        evaluate_popularity(loader, counts, {.cutoffs = {1}, .seen = seen, .progress = {}});
    EXPECT_EQ(metrics.users(), 2);
    EXPECT_EQ(metrics.repeats(), 1);
    EXPECT_DOUBLE_EQ(metrics.repeat_share(), 0.5);
    return std::pair(metrics.figures().front().second, metrics.figures().back().second);
  };
  // 0 and 1 leave: 2 is first for the second user, nothing can be for the first.
  EXPECT_EQ(figures(SeenItems::kDrop), std::pair(0.5, 0.5));
  // All stay: 0 is first, 2 third.
  EXPECT_EQ(figures(SeenItems::kKeep).first, 0.5);
  EXPECT_NEAR(figures(SeenItems::kKeep).second, (1 + 1.0 / 3) / 2, 1e-11);
  RankingMetrics none({1});
  EXPECT_EQ(repeats_text(none, SeenItems::kDrop), "");
  none.add_miss();
  none.count_repeat();
  EXPECT_EQ(repeats_text(none, SeenItems::kDrop),
            "  1 of 1 targets (100.0 %) are items their user had met before: misses, as seen items "
            "are dropped\n");
}

// A checkpoint with items and config alone, as this program or an older one writes it.
class SavedItems : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  checkpoint::Checkpoint save(std::int64_t step, std::vector<NamedTensor> names,
                              const std::string& config) {
    checkpoint::CheckpointContents contents;
    contents.step = step;
    contents.shards = {{"item_names", std::move(names)}};
    contents.state = nlohmann::json::object();
    contents.config = config;
    checkpoint::CheckpointWriter writer(folder_ / "checkpoints",
                                        {.keep_last = 9, .background = false});
    writer.save(contents);
    return checkpoint::Checkpoint(folder_ / "checkpoints" / checkpoint::checkpoint_name(step));
  }
};

TEST_F(SavedItems, RememberWhichWereTrained) {
  // 3 is validation's, 4 test's; 5 nobody's.
  write_store(folder_ / "s", {{0, 1, 2, 3, 4}}, 6);
  const data::Store store(folder_ / "s");
  const run::Config config = config_of();
  run::ItemNames names;
  const checkpoint::Checkpoint saved =
      save(1, names.tensors(config, store), run::config_text(config));
  using Marks = std::vector<std::uint8_t>;
  EXPECT_EQ(run::trained_items(saved, config, store), (Marks{1, 1, 1, 0, 0, 0}));
  // A store that has grown since: what is trained does not follow it.
  write_store(folder_ / "later", {{0, 1, 2, 3, 4, 5, 0}}, 7);
  const data::Store later(folder_ / "later");
  EXPECT_EQ(run::trained_items(saved, config, later), (Marks{1, 1, 1, 0, 0, 0, 0}));
  // A run that starts from it there has trained more; what it had stays.
  write_store(folder_ / "other", {{3, 4, 5, 6, 6}}, 7);
  const data::Store other(folder_ / "other");
  run::ItemNames next;
  next.add_trained(saved, other);
  const checkpoint::Checkpoint both =
      save(2, next.tensors(config, other), run::config_text(config));
  EXPECT_EQ(run::trained_items(both, config, other), (Marks{1, 1, 1, 1, 1, 1, 0}));
  // An older program's: the store's training part stands in.
  run::ItemNames old;
  std::vector<NamedTensor> tensors = old.tensors(config, store);
  tensors.pop_back();
  const checkpoint::Checkpoint unmarked = save(3, tensors, run::config_text(config));
  EXPECT_EQ(run::trained_items(unmarked, config, later), (Marks{1, 1, 1, 1, 1, 0, 0}));
}

TEST_F(SavedItems, OlderRunsDropSeenItemsUnlessAsked) {
  std::string text = run::config_text(config_of("[eval]\nseen = \"keep\"\n"));
  const checkpoint::Checkpoint saved = save(1, {}, text);
  EXPECT_EQ(run::seen_for(saved, run::parse_config(saved.config(), "saved"), ""), SeenItems::kKeep);
  EXPECT_EQ(run::seen_for(saved, run::parse_config(saved.config(), "saved"), "drop"),
            SeenItems::kDrop);
  const std::string line = "seen = \"keep\"\n";
  text.erase(text.find(line), line.size());
  const checkpoint::Checkpoint older = save(2, {}, text);
  EXPECT_EQ(run::seen_for(older, run::parse_config(older.config(), "older"), ""), SeenItems::kDrop);
  EXPECT_EQ(run::seen_for(older, run::parse_config(older.config(), "older"), "keep"),
            SeenItems::kKeep);
}

}  // namespace
}  // namespace turbogr::eval
