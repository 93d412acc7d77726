// Features in the retrieval task by the program: training, resuming, ranks, and items that were
// never trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/dist/communicator.h"

namespace turbogr {
namespace {

using test::has;
using test::Outcome;
using test::run_program;

// Everybody stays inside one category of ten items. Item c of a hundred and more is in nobody's
// history but as the last event of one user of category c: held out, so never trained.
class RetrievalFeaturesRun : public ::testing::Test {
 protected:
  static constexpr int kCategories = 4, kUsers = 80;
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();

  void SetUp() override {
    std::string log = "user_id,item_id,timestamp,tab\n", items = "item_id,category,tags\n",
                users = "user_id,gender\n";
    PhiloxStream random(5);
    for (int user = 0; user < kUsers; ++user) {
      const int category = user % kCategories;
      const auto add = [&](int item, int time) {
        log += std::to_string(user) + "," + std::to_string(item) + "," + std::to_string(time) +
               (random.below(2) == 0 ? ",home\n" : ",search\n");
      };
      for (int i = 0; i < 9; ++i) {
        add(10 * category + static_cast<int>(random.below(10)), 1000 + 60 * i);
      }
      if (user < kCategories) add(100 + category, 2000);
      users += std::to_string(user) + (user % 2 == 0 ? ",F\n" : ",M\n");
    }
    for (int category = 0; category < kCategories; ++category) {
      const std::string about =
          ",c" + std::to_string(category) + ",t" + std::to_string(category) + "|all\n";
      for (int i = 0; i < 10; ++i) items += std::to_string(10 * category + i) + about;
      items += std::to_string(100 + category) + about;
    }
    test::write_file(folder_ / "log.csv", log);
    test::write_file(folder_ / "items.csv", items);
    test::write_file(folder_ / "users.csv", users);
    const Outcome made = run_program("data prepare " + root_ + "/log.csv --out " + root_ +
                                     "/store --event-features tab " + "--item-table " + root_ +
                                     "/items.csv --item-features category,tags:bag --user-table " +
                                     root_ + "/users.csv --user-features gender");
    ASSERT_EQ(made.status, 0) << made.output;
  }

  std::string command(const std::string& run, const std::string& more) const {
    return test::program() + " train --data.store=" + root_ + "/store --run.dir=" + root_ + "/" +
           run +
           " --data.holdout=test --data.max_length=12 --model.layers=1 --model.width=16"
           " --model.heads=1 --model.dq=16 --model.dv=16 --train.batch=16 --train.threads=1"
           " --negatives.count=16 --optim.lr=0.01 --embedding.lr=0.01 --embedding.eps=0.001"
           " --optim.eps=0.001 --model.dropout=0 --checkpoint.keep_best=0 --train.patience=0"
           " --log.every=1 --log.progress=none --log.tensorboard=false --train.peak_tflops=1"
           " --eval.every=0 --eval.at=[4] --eval.metric=mrr " +
           more;
  }
  static std::string every_feature() {
    return " --features.category.from=item.category --features.tags.from=item.tags"
           " --features.tab.from=event.tab --features.hour.from=clock.hour"
           " --features.gender.from=user.gender "
           "--features.both.cross='[\"user.gender\",\"event.tab\"]'"
           " --tables.both.rows=20 ";
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> values;
    std::ifstream lines(root_ + "/" + run + "/metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("loss")) values.push_back(record.at("loss").get<double>());
    }
    return values;
  }
  std::string vectors(const std::string& run) const {
    const std::string file = root_ + "/" + run + ".safetensors";
    const Outcome out = run_program("export --checkpoint " + root_ + "/" + run + " --out " + file);
    EXPECT_EQ(out.status, 0) << out.output;
    return test::read_file(file);
  }
};

TEST_F(RetrievalFeaturesRun, ItemsThatWereNeverTrainedAreFoundByTheirFeatures) {
  const Outcome trained = test::run_command(command("cold",
                                                    "--train.epochs=25 --negatives.untrained=false"
                                                    " --features.category.from=item.category"));
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_TRUE(has(trained, "features 1 of items, 0 of events, 0 of users")) << trained.output;
  EXPECT_TRUE(has(trained, "candidates by id and features")) << trained.output;
  for (int user = kCategories; user < 3 * kCategories; ++user) {
    const std::string recommend = "recommend --checkpoint " + root_ + "/cold --k 1 --user " +
                                  std::to_string(user) + " --allow 100,101,102,103 --out " + root_ +
                                  "/list.csv ";
    const Outcome list = run_program(recommend + "--untrained-items");
    ASSERT_EQ(list.status, 0) << list.output;
    const std::string wanted =
        "\n" + std::to_string(user) + ",1," + std::to_string(100 + user % kCategories) + ",";
    EXPECT_TRUE(has(test::read_file(root_ + "/list.csv"), wanted))
        << user << ": " << test::read_file(root_ + "/list.csv");
    EXPECT_TRUE(has(run_program(recommend), "is left to recommend"));
  }
  // Another id output: rows of these items are as they began.
  const Outcome by_id = test::run_command(
      command("id", "--train.epochs=1 --model.output=id --features.category.from=item.category"));
  EXPECT_TRUE(has(by_id, "candidates by id\n")) << by_id.output;
}

// Items 200 + c are in the item table alone: nobody ever met them.
TEST_F(RetrievalFeaturesRun, ItemsThatNeverOccurredAreRecommendedByTheirFeatures) {
  std::string items = test::read_file(folder_ / "items.csv");
  for (int category = 0; category < kCategories; ++category) {
    items += std::to_string(200 + category) + ",c" + std::to_string(category) + ",all\n";
  }
  test::write_file(folder_ / "more_items.csv", items);
  const Outcome made = run_program(
      "data prepare " + root_ + "/log.csv --overwrite --out " + root_ + "/store --item-table " +
      root_ + "/more_items.csv --item-features category --keep-items-without-events");
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_TRUE(has(made, "4 of the items have no events and are kept for their features"))
      << made.output;
  for (const std::string untrained : {"true", "false"}) {
    const Outcome trained =
        test::run_command(command("new_" + untrained,
                                  "--train.epochs=25 --features.category.from=item.category"
                                  " --negatives.untrained=" +
                                      untrained));
    ASSERT_EQ(trained.status, 0) << trained.output;
  }
  // Ten items of the category and two that were never trained, before all other items.
  const auto listed = [&](int user, const std::string& more, const std::string& run = "new_false") {
    const Outcome list =
        run_program("recommend --checkpoint " + root_ + "/" + run + " --k 12 --seen keep --user " +
                    std::to_string(user) + " --out " + root_ + "/list.csv " + more);
    EXPECT_EQ(list.status, 0) << list.output;
    return test::read_file(folder_ / "list.csv");
  };
  std::int64_t ahead_drawn = 0, ahead_undrawn = 0;
  for (int user = kCategories; user < 3 * kCategories; ++user) {
    const std::string list = listed(user, "--untrained-items");
    for (int category = 0; category < kCategories; ++category) {
      const std::string item = "," + std::to_string(200 + category) + ",";
      EXPECT_EQ(list.find(item) != std::string::npos, category == user % kCategories)
          << user << " " << category << "\n"
          << list;
    }
    // Drawn as negatives such items stand further behind those that were learnt.
    const std::string own = "," + std::to_string(200 + user % kCategories) + ",";
    const auto ahead = [&](const std::string& text) {
      return std::count(text.begin(), text.begin() + std::ssize(text.substr(0, text.find(own))),
                        '\n');
    };
    ahead_undrawn += ahead(list);
    ahead_drawn += ahead(listed(user, "--untrained-items", "new_true"));
    const std::string trained_only = listed(user, "");
    EXPECT_EQ(trained_only.find("," + std::to_string(200 + user % kCategories) + ","),
              std::string::npos)
        << trained_only;
  }
  EXPECT_GT(ahead_drawn, ahead_undrawn);
}

// run.start_from would be refused for the values, so nobody is sent there for the items.
TEST_F(RetrievalFeaturesRun, NewValuesAreSaidBeforeNewItems) {
  const std::string keys = "--features.category.from=item.category --train.steps=";
  ASSERT_EQ(test::run_command(command("grows", keys + "2")).status, 0);
  std::ofstream(folder_ / "log.csv", std::ios::app) << "1,300,3000,home\n";
  std::ofstream(folder_ / "items.csv", std::ios::app) << "300,a9,all\n";
  const Outcome made =
      run_program("data prepare " + root_ + "/log.csv --overwrite --out " + root_ +
                  "/store --item-table " + root_ + "/items.csv --item-features category");
  ASSERT_EQ(made.status, 0) << made.output;
  const Outcome resumed = test::run_command(command("grows", keys + "4 --run.resume=true"));
  EXPECT_EQ(resumed.status, 1) << resumed.output;
  EXPECT_TRUE(has(resumed, "the codes of 'item.category' stand for others")) << resumed.output;
}

TEST_F(RetrievalFeaturesRun, ResumingGivesTheBitsOfOneRun) {
  for (const std::string output : {"id", "item"}) {
    const std::string more = every_feature() + " --model.output=" + output + " --train.steps=";
    const std::string whole = "whole_" + output, parts = "parts_" + output;
    const Outcome one = test::run_command(command(whole, more + "7"));
    ASSERT_EQ(one.status, 0) << one.output;
    ASSERT_EQ(test::run_command(command(parts, more + "4")).status, 0);
    const Outcome two = test::run_command(command(parts, more + "7 --run.resume=true"));
    ASSERT_EQ(two.status, 0) << two.output;
    const std::vector<double> all = losses(whole), resumed = losses(parts);
    ASSERT_GE(all.size(), 7u);
    EXPECT_EQ(all.back(), resumed.back());
    EXPECT_EQ(vectors(whole), vectors(parts));
    const Outcome figures =
        run_program("eval --checkpoint " + root_ + "/" + whole + " --split test");
    EXPECT_EQ(figures.status, 0) << figures.output;
    EXPECT_TRUE(has(figures, "mrr")) << figures.output;
  }
}

TEST_F(RetrievalFeaturesRun, RanksTrainAndEvaluateAsOneDoes) {
  if (!dist::built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const std::string more = every_feature() + " --train.steps=6 --model.temperature=1 ";
  ASSERT_EQ(test::run_command(command("one", more)).status, 0);
  const std::vector<double> alone = losses("one");
  for (const int ranks : {2, 4}) {
    const std::string run = "ranks" + std::to_string(ranks);
    const Outcome trained = test::mpirun(ranks, command(run, more + "--dist.group=2"));
    ASSERT_EQ(trained.status, 0) << trained.output;
    const std::vector<double> together = losses(run);
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-4) << i;
    const std::string eval = test::program() + " eval --checkpoint " + root_ + "/" + run +
                             " --split test --no-popularity --json " + root_;
    EXPECT_EQ(test::run_command(eval + "/one.json").status, 0);
    const Outcome several = test::mpirun(ranks, eval + "/several.json");
    EXPECT_EQ(several.status, 0) << several.output;
    EXPECT_EQ(test::read_file(folder_ / "one.json"), test::read_file(folder_ / "several.json"));
  }
}

TEST_F(RetrievalFeaturesRun, WhatDoesNotGoTogetherIsSaid) {
  const struct {
    std::string keys, message;
  } cases[] = {
      {"--features.x.from=item.categry", "the nearest is 'item.category'"},
      {"--features.x.from=item", "the item's own row is always there"},
      {"--features.x.from=event.tab --features.x.place=prefix", "the user alone decides"},
      {"--features.x.from=item.tags --tables.y.rows=3", "[tables.y] is read by no feature"},
      {"--features.x.from=item.tags --tables.x.width=3", "and model.width is 16"},
      {"--features.x.from=item.tags --negatives.dtype=f16", "model.output = \"id\""},
      {"--features.x.from=user.gender --model.targets=2", "use one of the two"},
      {"--features.x.from=item.category --features.x.number=normalised", "is for the ranking task"},
      {"--features.x.from=item.category --features.x.rate=like", "is for the ranking task"},
      {"--features.x.cross='[\"user\",\"item.category\"]'", "say how large that is"},
  };
  for (const auto& each : cases) {
    const Outcome refused =
        test::run_command(command("refused", "--run.dry_run=true --train.steps=1 " + each.keys));
    EXPECT_NE(refused.status, 0) << each.keys;
    EXPECT_TRUE(has(refused, each.message)) << each.keys << ": " << refused.output;
  }
}

}  // namespace
}  // namespace turbogr
