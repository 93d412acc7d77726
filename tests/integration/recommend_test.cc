// What a newcomer meets after training: titles, a store that moved, vectors, the demo's folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::Outcome;
using test::run_program;

class Newcomer : public ::testing::Test {
 protected:
  static constexpr int kItems = 30;
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();

  // A MovieLens folder with titles, a store of it and a model trained for two steps.
  void SetUp() override {
    fs::create_directory(folder_ / "ml");
    std::string ratings = "userId,movieId,rating,timestamp\n";
    for (int user = 1; user <= 20; ++user) {
      for (int i = 0; i < 6; ++i) {
        ratings += std::to_string(user) + "," + std::to_string((user * 7 + i * 5) % kItems) +
                   ",4," + std::to_string(1000 + i) + "\n";
      }
    }
    std::string movies = "movieId,title,genres\n";
    for (int item = 0; item < kItems; ++item) {
      movies += std::to_string(item) + ",\"Part " + std::to_string(item) + ", The\",x\n";
    }
    test::write_file(folder_ / "ml/ratings.csv", ratings);
    test::write_file(folder_ / "ml/movies.csv", movies);
    ASSERT_EQ(
        run_program("data prepare --format movielens " + root_ + "/ml --out " + root_ + "/store")
            .status,
        0);
    const Outcome trained = run_program(
        "train " + test::source_dir() + "/configs/demo.toml --data.store=" + root_ +
        "/store --run.dir=" + root_ +
        "/run --train.steps=2 --model.width=8 --model.heads=1 --model.dq=8 --model.dv=8 "
        "--train.peak_tflops=1");
    ASSERT_EQ(trained.status, 0) << trained.output;
  }
};

TEST_F(Newcomer, RecommendationsHaveTitles) {
  const std::string recommend = "recommend --checkpoint " + root_ + "/run --user 3 --k 2 ";
  const Outcome shown = run_program(recommend);
  EXPECT_EQ(shown.status, 0) << shown.output;
  // 3 * 7 + 5 * 5 = 46 is item 16, the newest.
  EXPECT_TRUE(has(shown, "user 3, recently 16 Part 16, The; 11 Part 11, The;")) << shown.output;
  EXPECT_TRUE(has(shown, "  Part ")) << shown.output;
  test::write_file(folder_ / "own.csv", "id,name\n16,Sixteen\n");
  EXPECT_TRUE(
      has(run_program(recommend + "--titles " + root_ + "/own.csv"), "recently 16 Sixteen; 11;"));
  EXPECT_TRUE(has(run_program(recommend + "--titles " + root_ + "/none"), "check the path"));
  ASSERT_EQ(run_program(recommend + "--out " + root_ + "/list.jsonl").status, 0);
  EXPECT_NE(test::read_file(folder_ / "list.jsonl").find("\"title\":\"Part "), std::string::npos);
}

TEST_F(Newcomer, EveryUserMayBeCalledAll) {
  const std::string recommend = "recommend --checkpoint " + root_ + "/run --k 2 --out " + root_;
  ASSERT_EQ(run_program(recommend + "/a.csv --all").status, 0);
  ASSERT_EQ(run_program(recommend + "/b.csv --users all", "cd " + root_ + "; ").status, 0);
  EXPECT_EQ(test::read_file(folder_ / "b.csv"), test::read_file(folder_ / "a.csv"));
  test::write_file(folder_ / "all", "3\n");  // a file of that name is a file
  ASSERT_EQ(run_program(recommend + "/c.csv --users all", "cd " + root_ + "; ").status, 0);
  EXPECT_EQ(test::read_file(folder_ / "c.csv").find("\n5,"), std::string::npos);
}

// A pipe is as good a list as a file; one that does not end is not read for ever.
TEST_F(Newcomer, ListsMayBePipesAndAreBounded) {
  const std::string recommend = "recommend --checkpoint " + root_ + "/run --k 2 ";
  const std::string pipe = root_ + "/pipe", out = root_ + "/lists.jsonl";
  const auto through_pipe = [&](const std::string& writer, const std::string& option) {
    return run_program(recommend + option + pipe + " --out " + out,
                       "rm -f " + pipe + "; mkfifo " + pipe + "; " + writer + " > " + pipe + " & ");
  };
  const Outcome some = through_pipe("printf '3\\r\\n5\\n3\\n'", "--users ");
  EXPECT_EQ(some.status, 0) << some.output;
  EXPECT_TRUE(has(some, "1 lines name a user again: each gets one list")) << some.output;
  const std::string lists = test::read_file(out);
  EXPECT_TRUE(std::regex_search(lists, std::regex(R"(^\{"user":3,"items":\[\{"item":\d+,)")))
      << lists;
  EXPECT_TRUE(has(lists, "\n{\"user\":5,\"items\":")) << lists;
  EXPECT_EQ(std::count(lists.begin(), lists.end(), '\n'), 2) << lists;
  EXPECT_EQ(through_pipe("printf '1\\n2\\n4' | gzip", "--user 3 --allow-file ").status, 0);

  const std::string limited = "ulimit -v 2000000; timeout 60 ";
  for (const std::string option :
       {"--users ", "--user 3 --allow-file ", "--user 3 --block-file "}) {
    const Outcome zeros = run_program(recommend + option + "/dev/zero", limited);
    EXPECT_EQ(zeros.status, 1) << zeros.output;
    EXPECT_TRUE(has(zeros, "without a line's end; give a file with one ")) << zeros.output;
  }
  const Outcome endless = through_pipe("yes 3", "--users ");
  EXPECT_EQ(endless.status, 1) << endless.output;
  EXPECT_TRUE(has(endless, "goes on for more than 256 MB")) << endless.output;
}

// More lists than wait in memory until the end.
TEST_F(Newcomer, ListsThatNobodyTakesAreNoSuccess) {
  const std::string all = "recommend --k 30 --all --checkpoint " + root_ + "/run";
  for (const char* nowhere : {" > /dev/full", " >&-"}) {
    const Outcome ended = run_program(all + nowhere);
    EXPECT_EQ(ended.status, 1) << nowhere;
    EXPECT_TRUE(has(ended, "turbogr: cannot write to standard output: ")) << ended.output;
  }
}

TEST_F(Newcomer, MoreThanTheCatalogueIsSaid) {
  const std::string from = " --checkpoint " + root_ + "/run ";
  EXPECT_TRUE(
      has(run_program("recommend --user 3 --k 30 --untrained-items --seen keep" + from), "  30  "));
  EXPECT_TRUE(has(run_program("recommend --user 3 --k 31" + from), "--k 31 is more than the "));
  const Outcome all = run_program("eval --at 29,30,100" + from);
  EXPECT_FALSE(has(all, "--at 29")) << all.output;
  for (const char* k : {"--at 30: there are 30 items", "--at 100: there are 30 items"}) {
    EXPECT_TRUE(has(all, k)) << all.output;
  }
}

TEST_F(Newcomer, AStoreThatMovedIsAskedFor) {
  fs::rename(folder_ / "store", folder_ / "moved");
  for (const std::string command : {"eval", "recommend --user 1", "export"}) {
    const Outcome lost = run_program(command + " --checkpoint " + root_ + "/run");
    EXPECT_EQ(lost.status, 1);
    EXPECT_TRUE(has(lost, "is not there; if it has moved, give --store FOLDER")) << lost.output;
  }
  const Outcome found =
      run_program("eval --checkpoint " + root_ + "/run --store " + root_ + "/moved");
  EXPECT_EQ(found.status, 0) << found.output;
}

TEST_F(Newcomer, ItemsTheModelNeverSawAreSaid) {
  test::write_file(folder_ / "more.csv",
                   test::read_file(folder_ / "ml/ratings.csv") + "3,500,4,2000\n3,501,4,2001\n");
  ASSERT_EQ(run_program("data prepare " + root_ + "/more.csv --out " + root_ + "/more").status, 0);
  const Outcome more =
      run_program("recommend --user 3 --checkpoint " + root_ + "/run --store " + root_ + "/more");
  EXPECT_EQ(more.status, 0);
  EXPECT_TRUE(has(more, "2 of the 32 items")) << more.output;
}

TEST_F(Newcomer, NothingHalfWrittenStays) {
  const std::string from = " --checkpoint " + root_ + "/run ";
  const std::string folder = root_ + "/folder";
  fs::create_directory(folder);
  for (const std::string command : {"recommend --all --out ", "export --out ", "eval --json "}) {
    EXPECT_EQ(run_program(command + folder + from).status, 1) << command;
    EXPECT_FALSE(fs::exists(folder + ".partial")) << command;
    EXPECT_EQ(run_program(command + root_ + "/none/file" + from).status, 1) << command;
  }
  EXPECT_TRUE(has(run_program("recommend --user 1 --checkpoint /dev/null"), "is no checkpoint"));
}

TEST_F(Newcomer, ExportNeedsNoMoreThanACheckpoint) {
  const Outcome both = run_program("export --checkpoint " + root_ + "/run", "cd " + root_ + " &&");
  EXPECT_EQ(both.status, 0) << both.output;
  EXPECT_TRUE(has(both, "30 item vectors and 20 user vectors")) << both.output;
  EXPECT_TRUE(fs::exists(folder_ / "vectors.safetensors"));
  const Outcome items =
      run_program("export --no-users --checkpoint " + root_ + "/run --out " + root_ + "/v.npy");
  EXPECT_FALSE(has(items, "user vectors")) << items.output;
}

TEST(Demo, EndsWhenItsTrainingIsStopped) {
  const test::TemporaryFolder folder;
  const std::string demo = (folder / "demo").string();
  const Outcome stopped =
      run_program("demo " + demo, "(for i in $(seq 1 1000); do [ -e " + demo +
                                      "/run/metrics.jsonl ] && break; sleep 0.05; done; "
                                      "kill -TERM $(pgrep -n -f '[t]urbogr demo " +
                                      demo + "')) & timeout -k 5 100 ");
  EXPECT_EQ(stopped.status, 1) << stopped.output;
  EXPECT_TRUE(has(stopped, "the demo ends here: SIGTERM")) << stopped.output;
  EXPECT_FALSE(has(stopped, "3. Quality")) << stopped.output;
}

TEST(Demo, RemovesOnlyWhatItMadeAndOnlyWhenAsked) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "precious", "x");
  const Outcome refused = run_program("demo " + folder.path().string());
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(has(refused, "not from an earlier demo")) << refused.output;
  EXPECT_TRUE(fs::exists(folder / "precious"));
  // A disk without room for a byte ends the demo right after the folder is made.
  const std::string again = "demo " + (folder / "new").string();
  EXPECT_NE(run_program(again, "ulimit -f 0;").status, 0);
  EXPECT_TRUE(fs::exists(folder / "new"));
  fs::create_directories(folder / "new/run");
  fs::create_directories(folder / "new/ranks");
  test::write_file(folder / "new/run/old", "x");
  test::write_file(folder / "new/ranks/mine", "x");
  const Outcome kept = run_program(again, "ulimit -f 0;");
  EXPECT_EQ(kept.status, 1);
  EXPECT_TRUE(has(kept, "holds an earlier demo")) << kept.output;
  EXPECT_TRUE(has(kept, "--overwrite")) << kept.output;
  EXPECT_TRUE(fs::exists(folder / "new/run/old"));
  EXPECT_FALSE(has(run_program(again + " --overwrite", "ulimit -f 0;"), "earlier demo"));
  EXPECT_FALSE(fs::exists(folder / "new/run/old"));
  EXPECT_TRUE(fs::exists(folder / "new/ranks/mine")) << "what the demo did not make stays";
}

}  // namespace
}  // namespace turbogr
