// What `eval` says and what `recommend` and `export` hand out, from a log in which items repeat.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/safetensors.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::has;
using test::Outcome;
using test::run_program;

// Songs: most users go round a few of them, some always hear new ones. Song 90 is a target only.
class Songs : public ::testing::Test {
 protected:
  static constexpr int kUsers = 80;
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();
  std::string from_ = " --checkpoint " + root_ + "/run ";
  std::map<std::string, std::string> target_of_;  // the last song of each user

  static int song(int user, int i) {
    if (user == 7 && i == 11) return 90;
    return user % 4 == 0 ? (user + 3 * i) % 60 : (user * 7 + i % 3) % 60;
  }

  void SetUp() override {
    std::string log = "user_id,item_id,timestamp\n";
    for (int user = 0; user < kUsers; ++user) {
      for (int i = 0; i < 12; ++i) {
        log += fmt::format("{},{},{}\n", user, song(user, i), 1000 + 60 * i);
        target_of_[std::to_string(user)] = std::to_string(song(user, i));
      }
    }
    test::write_file(folder_ / "log.csv", log);
    const Outcome made =
        run_program("data prepare " + root_ + "/log.csv --out " + root_ + "/store");
    ASSERT_EQ(made.status, 0) << made.output;
    const Outcome trained = train("run", "");
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_TRUE(has(trained,
                    "of the test targets are items their user had met before: seen items "
                    "stay candidates (eval.seen = \"keep\")"))
        << trained.output;
  }

  Outcome train(const std::string& run, const std::string& more) {
    return run_program("train " + test::source_dir() + "/configs/demo.toml --data.store=" + root_ +
                       "/store --run.dir=" + root_ + "/" + run +
                       " --train.epochs=0 --train.steps=30 --model.width=16 --model.heads=1 "
                       "--train.peak_tflops=1 --eval.every=0 --log.tensorboard=false " +
                       more);
  }

  json evaluation(const std::string& options) {
    const Outcome outcome = run_program("eval --split test --at 1,5,20 --json " + root_ +
                                        "/eval.json" + from_ + options);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return json::parse(test::read_file(folder_ / "eval.json")).at(0);
  }

  // The lists of a .csv, by user.
  std::map<std::string, std::vector<std::string>> lists(const std::string& options, int k = 20) {
    fs::remove(folder_ / "lists.csv");
    const Outcome outcome = run_program(
        fmt::format("recommend --k {} --out {}/lists.csv{}{}", k, root_, from_, options));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::map<std::string, std::vector<std::string>> found;
    std::istringstream lines(test::read_file(folder_ / "lists.csv"));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::string user, place, item;
      std::getline(fields, user, ',');
      std::getline(fields, place, ',');
      std::getline(fields, item, ',');
      found[user].push_back(item);
    }
    return found;
  }
};

TEST_F(Songs, RecommendsListsReproduceEvalsFigures) {
  std::map<std::string, double> hits;
  for (const std::string seen : {"", "--seen keep", "--seen drop"}) {
    const json figures = evaluation(seen);
    EXPECT_EQ(figures.at("users"), kUsers);
    EXPECT_EQ(figures.at("seen"), seen == "--seen drop" ? "drop" : "keep");
    EXPECT_DOUBLE_EQ(figures.at("repeats").get<double>(), 59.0 / kUsers);
    const auto found = lists("--all --split test --untrained-items " + seen);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(kUsers));
    for (const std::size_t k : {1, 5, 20}) {
      int hit = 0;
      for (const auto& [user, list] : found) {
        const auto end = list.begin() + static_cast<std::ptrdiff_t>(std::min(k, list.size()));
        hit += std::find(list.begin(), end, target_of_.at(user)) != end ? 1 : 0;
      }
      EXPECT_EQ(figures.at(fmt::format("hr@{}", k)).get<double>(),
                static_cast<double>(hit) / kUsers)
          << seen << " at " << k;
    }
    hits[seen] = figures.at("hr@20");
  }
  // The two rules differ here, so equality above says something.
  EXPECT_GT(hits["--seen keep"], hits["--seen drop"]);
  EXPECT_GT(hits["--seen drop"], 0);
}

TEST_F(Songs, WhatIsTheSameInEveryEvaluationIsSaidOnce) {
  const Outcome trained = train("often", "--eval.every_steps=5");
  const auto times = [&](const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = trained.output.find(part, at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  };
  EXPECT_GE(times("validation after "), 5) << trained.output;
  EXPECT_EQ(times("test after "), 1) << trained.output;
  EXPECT_EQ(times(" of 80 targets "), 2) << trained.output;
}

TEST_F(Songs, TheRuleIsKeptWithTheRun) {
  EXPECT_NE(test::read_file(folder_ / "run/config.toml").find("seen = \"keep\""),
            std::string::npos);
  const Outcome shown = run_program("eval" + from_);
  EXPECT_TRUE(has(shown, "seen items kept")) << shown.output;
  EXPECT_TRUE(has(shown,
                  "59 of 80 targets (73.8 %) are items their user had met before: seen items "
                  "stay candidates"))
      << shown.output;
  EXPECT_TRUE(has(shown, "test        model       80 users  hr@10 ")) << shown.output;
  const Outcome dropped = run_program("eval --seen drop" + from_);
  EXPECT_TRUE(has(dropped, "misses, as seen items are dropped")) << dropped.output;
  const Outcome other = train("run", "--run.resume=true --train.steps=31 --eval.seen=drop");
  EXPECT_EQ(other.status, 1);
  EXPECT_TRUE(has(other, "eval.seen is drop, was keep")) << other.output;
  const Outcome same = train("run", "--run.resume=true --train.steps=31");
  EXPECT_EQ(same.status, 0) << same.output;
  // A rule that was asked for stays when the run is resumed without a word about it.
  ASSERT_EQ(train("asked", "--eval.seen=drop").status, 0);
  const Outcome resumed = train("asked", "--run.resume=true --train.steps=31");
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_NE(test::read_file(folder_ / "asked/config.toml").find("seen = \"drop\""),
            std::string::npos);
  const Outcome wrong = run_program("recommend --user 1 --seen sometimes" + from_);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(has(wrong, "'sometimes' is none of drop, keep")) << wrong.output;
  const Outcome stats = run_program("data stats " + root_ + "/store");
  EXPECT_TRUE(has(stats,
                  "73.8 % of last events are items their user had met; eval.seen = \"auto\" "
                  "is \"keep\""))
      << stats.output;
}

TEST_F(Songs, MaxUsersAsksAndLogsAsMany) {
  const Outcome trained = train("some", "--eval.max_users=20");
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_TRUE(has(trained, " 20 users:")) << trained.output;
  const std::string lines = test::read_file(folder_ / "some/metrics.jsonl");
  const json last = json::parse(lines.substr(lines.rfind('\n', lines.size() - 2) + 1));
  EXPECT_EQ(last.at("users"), 20);  // which ones: Windows.DrawUsersOfAnEvaluationByTheSeed
}

TEST_F(Songs, ItemsNeverTrainedAreLeftOutUnlessAskedFor) {
  const auto recommends = [&](const std::string& options, const std::string& item) {
    for (const auto& [user, list] : lists("--all --seen keep " + options, 100)) {
      if (std::find(list.begin(), list.end(), item) != list.end()) return true;
    }
    return false;
  };
  EXPECT_FALSE(recommends("", "90"));
  EXPECT_TRUE(recommends("--untrained-items", "90"));
  const Outcome said = run_program("recommend --user 1" + from_);
  EXPECT_TRUE(has(said, "1 items left out: they do not occur in training")) << said.output;
  EXPECT_TRUE(has(run_program("eval" + from_),
                  "1 of the items do not occur in training: ranked here, left out by recommend"));
  const checkpoint::SafetensorsFile vectors = [&] {
    const Outcome exported = run_program("export --out " + root_ + "/v.safetensors" + from_);
    EXPECT_EQ(exported.status, 0) << exported.output;
    return checkpoint::SafetensorsFile(root_ + "/v.safetensors");
  }();
  const auto trained = vectors.view<std::uint8_t, 1>("items_trained");
  const auto ids = vectors.view<std::int64_t, 1>("item_ids");
  EXPECT_EQ(ids(ids.shape[0] - 1), 90);
  EXPECT_EQ(trained(trained.shape[0] - 1), 0);
  EXPECT_EQ(trained(0), 1);
}

TEST_F(Songs, ListsKeepToAllowedAndBlockedItems) {
  test::write_file(folder_ / "allowed", "3\n5\n\n11\nnosuch\n");
  for (const std::string& allow :
       {std::string("--allow 3,5,11,nosuch"), "--allow-file " + root_ + "/allowed"}) {
    for (const auto& [user, list] : lists("--all --seen keep " + allow)) {
      EXPECT_EQ(std::set<std::string>(list.begin(), list.end()),
                (std::set<std::string>{"3", "5", "11"}))
          << user;
    }
  }
  // Blocking what is allowed leaves the rest; seen items leave a list as they leave the whole.
  for (const auto& [user, list] : lists("--all --allow 3,5,11 --block 5 --seen drop")) {
    for (const std::string& item : list) {
      EXPECT_TRUE(item == "3" || item == "11") << item;
      for (int i = 0; i < 12; ++i) EXPECT_NE(item, std::to_string(song(std::stoi(user), i)));
    }
  }
  // Order and scores are those of the whole ranking.
  const auto whole = lists("--all --seen keep", 200);
  for (const auto& [user, list] : lists("--all --seen keep --block 3,5,11", 200)) {
    std::vector<std::string> rest = whole.at(user);
    std::erase_if(
        rest, [](const std::string& item) { return item == "3" || item == "5" || item == "11"; });
    EXPECT_EQ(list, rest);
  }
  const Outcome nothing = run_program("recommend --user 1 --allow 3 --block 3" + from_);
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(has(nothing, "is left to recommend")) << nothing.output;
}

TEST_F(Songs, UnknownIdsAreSkippedWithACountOrAnError) {
  test::write_file(folder_ / "users", "1\nnobody\n2\n00\n\x1b[2J\n");
  const std::string users = "--users " + root_ + "/users ";
  EXPECT_EQ(lists(users).size(), 2u);
  const Outcome skipped = run_program("recommend " + users + from_);
  EXPECT_TRUE(has(skipped, "3 of 5 users skipped: ")) << skipped.output;
  EXPECT_TRUE(has(skipped, "users:2: no user 'nobody'")) << skipped.output;
  const Outcome refused = run_program("recommend --unknown error " + users + from_);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(has(refused, "users:2: no user 'nobody'")) << refused.output;
  EXPECT_TRUE(has(run_program("recommend --user 1 --allow 3,nosuch" + from_),
                  "1 of 2 items skipped: no item 'nosuch'"));
  test::write_file(folder_ / "history", "3\nnosuch\n5\n");
  const Outcome history = run_program("recommend --history " + root_ + "/history" + from_);
  EXPECT_EQ(history.status, 0) << history.output;
  EXPECT_TRUE(has(history, "recently 5, 3\n")) << history.output;
  EXPECT_TRUE(has(history, "1 of 3 items skipped")) << history.output;
  for (const std::string nobody : {"--user 00", "--user nobody"}) {
    const Outcome outcome = run_program("recommend " + nobody + from_);
    EXPECT_EQ(outcome.status, 1) << nobody;
    EXPECT_TRUE(has(outcome, "no user '")) << outcome.output;
  }
}

// Seen by script(1), a terminal; elsewhere such short jobs say nothing.
TEST_F(Songs, LongAnswersShowHowFarTheyAre) {
  if (test::run_command("script -qec true /dev/null").status != 0) {
    GTEST_SKIP() << "no terminal is to be had here by script(1)";
  }
  const std::string recommend = "recommend --all --out " + root_ + "/lists.csv" + from_;
  const auto on_a_terminal = [](const std::string& arguments) {
    return test::run_command("script -qec '" + test::program() + " " + arguments + "' /dev/null");
  };
  for (const auto& [arguments, stage] :
       {std::pair{recommend, "recommend  ["},
        {"eval --split test" + from_, "model      ["},
        {"export --out " + root_ + "/v.npy" + from_, "export     ["}}) {
    const Outcome shown = on_a_terminal(arguments);
    EXPECT_EQ(shown.status, 0) << shown.output;
    EXPECT_TRUE(has(shown, stage)) << shown.output;
    EXPECT_TRUE(has(shown, " users/s")) << shown.output;
    EXPECT_FALSE(has(run_program(arguments), " users/s")) << arguments;
  }
}

TEST_F(Songs, TheNameOfTheOutputSaysItsForm) {
  for (const std::string name : {"lists", "lists.csv.gz", "lists.json"}) {
    // Before anything else: there is no such checkpoint.
    const Outcome outcome =
        run_program("recommend --all --checkpoint nosuch --out " + root_ + "/" + name);
    EXPECT_EQ(outcome.status, 1) << name;
    EXPECT_TRUE(has(outcome, "lists are written as .csv, .jsonl or .parquet")) << outcome.output;
    EXPECT_FALSE(fs::exists(folder_ / name)) << name;
  }
  const Outcome written = run_program("recommend --all --out " + root_ + "/l.jsonl" + from_);
  EXPECT_TRUE(has(written, "l.jsonl: lists of 80 users in ")) << written.output;
  EXPECT_TRUE(has(written, " a second; seen items kept")) << written.output;
  const std::string lines = test::read_file(folder_ / "l.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), kUsers);
  EXPECT_EQ(json::parse(lines.substr(0, lines.find('\n'))).at("items").size(), 10u);
  const Outcome device = run_program("recommend --user 1 --k 2 --out /dev/stdout" + from_);
  EXPECT_TRUE(has(device, "user,place,item,score\n1,1,")) << device.output;
}

TEST(StrangeIds, StayOneLineAndDoNotReachTheTerminal) {
  const test::TemporaryFolder folder;
  const std::string root = folder.path().string();
  std::string log = "user_id,item_id,timestamp\n";
  for (int user = 0; user < 6; ++user) {
    for (int i = 0; i < 5; ++i) {
      log += fmt::format("\"u\x1b[2J{}\",\"song\n{}\",{}\n", user, (user + i) % 7, 100 + i);
    }
  }
  test::write_file(folder / "log.csv", log);
  const Outcome made = run_program("data prepare " + root + "/log.csv --out " + root + "/store");
  ASSERT_EQ(made.status, 0) << made.output;
  const Outcome trained =
      run_program("train " + test::source_dir() + "/configs/demo.toml --data.store=" + root +
                  "/store --run.dir=" + root +
                  "/run --train.steps=2 --model.width=8 --model.heads=1 --train.peak_tflops=1");
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::string from = " --checkpoint " + root + "/run";
  const Outcome exported = run_program("export --out " + root + "/v.safetensors" + from);
  ASSERT_EQ(exported.status, 0) << exported.output;
  const checkpoint::SafetensorsFile vectors(root + "/v.safetensors");
  const auto ends = vectors.view<std::int64_t, 1>("item_ids.ends");
  const auto text = vectors.view<std::uint8_t, 1>("item_ids.text");
  ASSERT_EQ(ends.shape[0], 7);
  EXPECT_EQ(std::string(text.data, text.data + ends(1)), "song\n0song\n1");
  const auto users = vectors.view<std::uint8_t, 1>("user_ids.text");
  EXPECT_EQ(std::string(users.data, users.data + 6), "u\x1b[2J0");
  const Outcome shown = run_program("recommend --all --seen keep" + from);
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_TRUE(has(shown, "user u\\x1b[2J0, recently song\\n4, song\\n3")) << shown.output;
  EXPECT_EQ(shown.output.find('\x1b'), std::string::npos) << shown.output;
}

TEST(StrangeIds, AreNotOthersInJson) {
  const test::TemporaryFolder folder;
  const std::string root = folder.path().string();
  std::string log = "user_id,item_id,timestamp\n";
  for (int user = 0; user < 6; ++user) {
    for (int i = 0; i < 5; ++i) {
      log += fmt::format("u{},caf\xe9{},{}\n", user, (user + i) % 7, 100 + i);
    }
  }
  test::write_file(folder / "log.csv", log);
  ASSERT_EQ(run_program("data prepare " + root + "/log.csv --out " + root + "/store").status, 0);
  const Outcome trained =
      run_program("train " + test::source_dir() + "/configs/demo.toml --data.store=" + root +
                  "/store --run.dir=" + root +
                  "/run --train.steps=2 --model.width=8 --model.heads=1 --train.peak_tflops=1");
  ASSERT_EQ(trained.status, 0) << trained.output;
  const std::string recommend = "recommend --all --seen keep --checkpoint " + root + "/run --out ";
  const Outcome refused = run_program(recommend + root + "/l.jsonl");
  EXPECT_EQ(refused.status, 1) << refused.output;
  EXPECT_TRUE(has(refused, "the id 'caf\\xe9")) << refused.output;
  EXPECT_TRUE(has(refused, "is no UTF-8, and JSON and Parquet hold nothing else"))
      << refused.output;
  EXPECT_FALSE(std::filesystem::exists(folder / "l.jsonl"));
  ASSERT_EQ(run_program(recommend + root + "/l.csv").status, 0);
  EXPECT_NE(test::read_file(folder / "l.csv").find(",caf\xe9"), std::string::npos);
}

}  // namespace
}  // namespace turbogr
