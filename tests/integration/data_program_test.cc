// `turbogr data` as a user runs it: limits, pipes, signals and kills included.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::Outcome;
using test::read_file;
using test::run_program;
using test::TemporaryFolder;
using test::write_file;

std::string random_log(int rows) {
  PhiloxStream random(9);
  std::string text = "user_id,item_id,timestamp,is_click\n";
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("{},{},{},{}\n", random.below(3000), random.below(50000),
                        1600000000 + random.below(1000000), random.below(2));
  }
  return text;
}

int entries_of(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void expect_same_store(const fs::path& a, const fs::path& b) {
  for (const auto& entry : fs::directory_iterator(a)) {
    EXPECT_EQ(read_file(entry.path()), read_file(b / entry.path().filename())) << entry.path();
  }
  EXPECT_EQ(entries_of(a), entries_of(b));
}

// Starts prepare in the background, its words thrown away.
pid_t start_prepare(const std::vector<std::string>& arguments) {
  std::string program = test::program();
  const pid_t child = ::fork();
  if (child != 0) return child;
  std::vector<char*> words = {program.data(), const_cast<char*>("data"),
                              const_cast<char*>("prepare")};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int nowhere = ::open("/dev/null", O_RDWR);
  ::dup2(nowhere, 1);
  ::dup2(nowhere, 2);
  ::execv(program.c_str(), words.data());
  ::_exit(127);
}

void sleep_ms(std::int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(DataProgram, PreparesDescribesAndVerifies) {
  TemporaryFolder folder;
  const auto log =
      write_file(folder / "log.csv", "user_id,item_id,timestamp\n1,5,10\n1,6,20\n2,5,9\n");
  const std::string store = (folder / "s").string();
  Outcome outcome = run_program("data prepare " + log.string() + " --out " + store);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "2 users, 2 items, 3 events")) << outcome.output;
  outcome = run_program("data stats " + store + " --json " + (folder / "stats.json").string());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "events     3"));
  const auto json = nlohmann::json::parse(read_file(folder / "stats.json"));
  EXPECT_EQ(json["users"], 2);
  EXPECT_EQ(json["lengths"]["max"], 2);
  EXPECT_EQ(json["time"]["span"], 11);
  outcome = run_program("data verify " + store);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::string items = read_file(folder / "s" / "items.bin");
  items[0] = static_cast<char>(items[0] ^ 1);
  write_file(folder / "s" / "items.bin", items);
  outcome = run_program("data verify " + store);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.output, "damaged")) << outcome.output;
  EXPECT_EQ(run_program("data stats " + (folder / "none").string()).status, 1);
  EXPECT_EQ(run_program("data stats " + store + " --json /no/such/folder/x").status, 1);
}

TEST(DataProgram, KeepsFeaturesAndSaysWhatBecameOfThem) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", "user_id,item_id,tab\n1,5,a\n1,6,\n2,5,b\n");
  const auto items =
      write_file(folder / "items.csv", "item_id,tags,price\n5,x|y,3\n7,z,1\n5,y,dear\n");
  const auto users = write_file(folder / "users.csv", "user_id,gender,age\n1,F,20\n2,M,30\n");
  const std::string store = (folder / "s").string();
  const std::string command = fmt::format(
      "data prepare --event-features tab --item-table {} --item-features tags,price:number "
      "--user-table {} --user-features gender,age {} --out {}",
      items.string(), users.string(), log.string(), store);
  Outcome outcome = run_program(command);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const char* words :
       {"item feature tags: bag, 3 values, 50.0 % missing", "user feature gender: category, 2",
        "event feature tab: category, 2 values, 33.3 % missing", "item feature price: number",
        "1 of 3 rows speak of items without events", "1 of 2 items have no row",
        "1 rows repeat the id", "1 fields are no numbers and count as missing, the first 'dear'"}) {
    EXPECT_TRUE(has(outcome.output, words)) << words << "\n" << outcome.output;
  }
  EXPECT_EQ(run_program("data verify " + store).status, 0);
  // A table that can be read only once gives the same.
  const std::string piped = (folder / "piped").string();
  outcome = run_program(
      fmt::format("data prepare --event-features tab --item-table - --item-features "
                  "tags,price:number --user-table {} --user-features gender,age {} --out {}",
                  users.string(), log.string(), piped),
      "cat " + items.string() + " |");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  expect_same_store(store, piped);
  outcome = run_program("data stats " + store + " --json " + (folder / "stats.json").string());
  EXPECT_TRUE(has(outcome.output, "most frequent")) << outcome.output;
  const auto json = nlohmann::json::parse(read_file(folder / "stats.json"));
  EXPECT_EQ(json["features"].size(), 5u);
  EXPECT_EQ(json["feature_tables"].size(), 2u);
  std::string codes = read_file(folder / "s" / "user_feature_gender.bin");
  codes[0] = static_cast<char>(codes[0] ^ 1);
  write_file(folder / "s" / "user_feature_gender.bin", codes);
  outcome = run_program("data verify " + store);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.output, "user_feature_gender.bin")) << outcome.output;
  outcome = run_program(command + " --overwrite --user-features gendre");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.output, "no column 'gendre'")) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "has: user_id, gender, age")) << outcome.output;
}

TEST(DataProgram, ReadsStandardInput) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(5000));
  const std::string plain = (folder / "plain").string();
  const std::string piped = (folder / "piped").string();
  EXPECT_EQ(run_program("data prepare " + log.string() + " --out " + plain).status, 0);
  const Outcome outcome =
      run_program("data prepare - --out " + piped, "cat " + log.string() + " |");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  expect_same_store(plain, piped);
}

TEST(DataProgram, TakesOptionsBeforeInputs) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(10));
  const auto table = write_file(folder / "users.csv", "user_id,age\n1,20\n");
  const Outcome outcome = run_program(fmt::format(
      "data prepare --signal-columns none --number-columns timestamp,is_click --user-table {} "
      "--user-table {} {} --out {}",
      table.string(), table.string(), log.string(), (folder / "s").string()));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const Store store(folder / "s");
  EXPECT_FALSE(store.has_signals());
  EXPECT_EQ(store.manifest().numbers, (std::vector<std::string>{"timestamp", "is_click"}));
  EXPECT_EQ(read_file(store.side_table("user_features")), read_file(table));
  EXPECT_EQ(read_file(store.side_table("user_features_2")), read_file(table));
}

TEST(DataProgram, MergesShardsAndLeavesTheWholeToTheMerge) {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  fs::create_directory(folder / "logs");
  write_file(folder / "logs/a.csv", random_log(300));
  write_file(folder / "logs/b.csv", random_log(200));
  const std::string prepare = "data prepare " + root + "/logs --out " + root;
  ASSERT_EQ(run_program(prepare + "/whole --min-user 1").status, 0);
  ASSERT_EQ(run_program(prepare + "/one --shard 1/2").status, 0);
  ASSERT_EQ(run_program(prepare + "/two --shard 2/2").status, 0);
  const Outcome merged = run_program("data merge " + root + "/one " + root +
                                     "/two --min-user 1 --out " + root + "/merged");
  EXPECT_EQ(merged.status, 0) << merged.output;
  expect_same_store(folder / "whole", folder / "merged");
  const Outcome early = run_program(prepare + "/bad --shard 1/2 --min-user 3");
  EXPECT_EQ(early.status, 2) << early.output;
  EXPECT_TRUE(has(early, "give them to `turbogr data merge`")) << early.output;
  for (const char* none : {"3/2", "1/4294967297", "4294967297/4294967298", "1", "1/", "/2", "1/2x",
                           "0/2", "-1/2", "1//2"}) {
    const Outcome refused = run_program(prepare + "/bad --shard " + none);
    EXPECT_EQ(refused.status, 2) << none;
    EXPECT_TRUE(has(refused, "write 1/8")) << none << ": " << refused.output;
  }
  EXPECT_FALSE(fs::exists(folder / "bad"));
}

TEST(DataProgram, SaysWhenSecondsAndMillisecondsMeet) {
  TemporaryFolder folder;
  const auto log = write_file(
      folder / "log.csv", "user,item,time\n1,1,1600000000\n1,2,1600000100000\n1,3,1600000200\n");
  const std::string prepare =
      "data prepare " + log.string() + " --overwrite --out " + (folder / "s").string();
  const Outcome mixed = run_program(prepare);
  EXPECT_EQ(mixed.status, 0) << mixed.output;
  EXPECT_TRUE(has(mixed.output, "mixes seconds and milliseconds")) << mixed.output;
  EXPECT_FALSE(has(run_program(prepare + " --time-unit ms").output, "mixes seconds"));
}

TEST(DataProgram, TakesLabelsAndLeavesRepeatsOut) {
  TemporaryFolder folder;
  const auto log = write_file(
      folder / "log.csv", "user,item,time,rating\n1,1,1,5\n1,1,1,5\n1,2,2,2\n1,1,3,4\n2,1,1,5\n");
  const std::string base =
      "data prepare " + log.string() + " --overwrite --out " + (folder / "s").string();
  Outcome outcome = run_program(base + " --deduplicate --label 'rating>=4' --label 'rating<3'");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "2 users, 2 items, 4 events")) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "1 repeated")) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "1 of 2 users have fewer than 3 events")) << outcome.output;
  EXPECT_EQ(Store(folder / "s").manifest().signals,
            (std::vector<std::string>{"rating>=4", "rating<3"}));
  outcome =
      run_program(base + " --deduplicate-items --label 'rating>=4' --keep-signal 'rating>=4'");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "2 users, 1 items, 2 events")) << outcome.output;
}

TEST(DataProgram, SaysThatColumnsAreJoinedWithCommas) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(10));
  const Outcome outcome =
      run_program("data prepare " + log.string() + " --out " + (folder / "s").string() +
                  " --number-columns is_click timestamp");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(
      has(outcome.output, "no input 'timestamp'; if it is a column, join columns with commas"))
      << outcome.output;
}

TEST(DataProgram, ListsTheUsualNamesInItsHelp) {
  const Outcome outcome = run_program("data prepare --help");
  EXPECT_EQ(outcome.status, 0);
  for (const UsualNames& usual : usual_names()) {
    for (const std::string_view name : usual.names) {
      EXPECT_TRUE(has(outcome.output, std::string(name))) << name;
    }
  }
}

TEST(DataProgram, RefusesAmountsThatAreNone) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(10));
  const std::string base =
      "data prepare " + log.string() + " --out " + (folder / "s").string() + " --memory ";
  for (const char* amount : {"lots", "12XB", "-2GB", "1MB"}) {
    const Outcome outcome = run_program(base + amount);
    EXPECT_EQ(outcome.status, 2) << amount;
    EXPECT_TRUE(has(outcome.output, "--memory")) << outcome.output;
  }
  EXPECT_EQ(run_program(base + "0.5GiB --format csv --on-error skip").status, 0);
  EXPECT_EQ(run_program(base + "64MB --overwrite --on-error ignore").status, 2);
  EXPECT_EQ(run_program(base + "64MB --overwrite --format json").status, 2);
}

// The sanitizers reserve terabytes of address space; a limit on it means nothing to them.
TEST(DataProgram, StaysWithinAHardLimitAndMakesTheSameStore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "no limit on address space under a sanitizer";
#endif
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(700000));
  const std::string base = "data prepare " + log.string() + " --out ";
  const Outcome free = run_program(base + (folder / "free").string());
  EXPECT_TRUE(has(free.output, "in memory")) << free.output;
  const Outcome bound =
      run_program(base + (folder / "bound").string() + " --memory 64MB", "ulimit -v 300000;");
  EXPECT_EQ(bound.status, 0) << bound.output;
  EXPECT_TRUE(has(bound.output, "sorted runs")) << bound.output;
  expect_same_store(folder / "free", folder / "bound");
  const Outcome tight =
      run_program(base + (folder / "tight").string() + " --memory 8GB", "ulimit -v 300000;");
  EXPECT_EQ(tight.status, 1);
  EXPECT_TRUE(has(tight.output, "give a smaller one")) << tight.output;
}

TEST(DataProgram, AbsurdLinesAreToldWithinTheMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "no limit on address space under a sanitizer";
#endif
  TemporaryFolder folder;
  const std::string commas(20'000'000, ',');
  for (const std::string& text :
       {"user_id,item_id" + commas + "\n1,2\n", "user_id,item_id\n1,2" + commas + "\n"}) {
    const auto log = write_file(folder / "log.csv", text);
    const Outcome outcome = run_program(
        "data prepare " + log.string() + " --memory 64MB --out " + (folder / "s").string(),
        "ulimit -v 300000;");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_TRUE(has(outcome.output, "a record of more than 4 MB")) << outcome.output;
  }
}

TEST(DataProgram, AFullDiskIsAClearErrorAndLeavesNothing) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(100000));
  fs::create_directory(folder / "out");
  // A limit on the size of a file fails a write as a full disk does.
  const Outcome outcome = run_program(
      "data prepare " + log.string() + " --out " + (folder / "out/s").string(), "ulimit -f 100;");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.output, "cannot write") && has(outcome.output, "free some room"))
      << outcome.output;
  EXPECT_EQ(entries_of(folder / "out"), 0);
}

TEST(DataProgram, FiguresThatDoNotFitLeaveTheFileAsItWas) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(1000));
  const std::string store = (folder / "s").string(), figures = (folder / "stats.json").string();
  ASSERT_EQ(run_program("data prepare " + log.string() + " --out " + store).status, 0);
  write_file(figures, "as it was");
  const Outcome outcome = run_program("data stats " + store + " --json " + figures, "ulimit -f 0;");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.output, "cannot write")) << outcome.output;
  EXPECT_EQ(read_file(figures), "as it was");
  EXPECT_EQ(entries_of(folder.path()), 3);
}

TEST(DataProgram, AnInterruptRemovesTheTemporaryFiles) {
  TemporaryFolder folder;
  fs::create_directory(folder / "out");
  for (const int signal : {SIGINT, SIGTERM}) {
    // A pipe that never ends: prepare waits in the middle of its input.
    ASSERT_EQ(::system(("mkfifo " + (folder / "pipe").string()).c_str()), 0);
    const pid_t child = start_prepare(
        {(folder / "pipe").string(), "--out", (folder / "out/s").string(), "--delimiter", ","});
    const int pipe = ::open((folder / "pipe").c_str(), O_WRONLY);
    const std::string text = random_log(1000);
    ASSERT_EQ(::write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    for (int i = 0; i < 500 && entries_of(folder / "out") == 0; ++i) sleep_ms(10);
    EXPECT_EQ(entries_of(folder / "out"), 1);
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    EXPECT_EQ(entries_of(folder / "out"), 0);
    fs::remove(folder / "pipe");
  }
}

// tools/kill_prepare does the same twenty times on a larger log.
TEST(DataProgram, AKillNeverLeavesAWrongStore) {
  TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(300000));
  fs::create_directory(folder / "out");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(
      run_program("data prepare " + log.string() + " --out " + (folder / "whole").string()).status,
      0);
  const auto whole_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - begin)
                            .count();
  PhiloxStream random(static_cast<std::uint64_t>(::getpid()));
  const fs::path out = folder / "out/s";
  for (int round = 0; round < 5; ++round) {
    fs::remove_all(out);
    const pid_t child = start_prepare({log.string(), "--out", out.string()});
    sleep_ms(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(whole_ms) + 20)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const auto& entry : fs::directory_iterator(folder / "out")) {
      if (entry.path() == out) {
        expect_same_store(folder / "whole", out);
      } else {
        EXPECT_FALSE(test::message_of([&] { Store store(entry.path()); }).empty()) << entry.path();
      }
    }
  }
  fs::remove_all(out);
  EXPECT_EQ(run_program("data prepare " + log.string() + " --out " + out.string()).status, 0);
  EXPECT_EQ(entries_of(folder / "out"), 1) << "leftovers of killed runs stay";
  expect_same_store(folder / "whole", out);
}

// By hand it does a hundred.
TEST(DataProgram, AKillLeavesTheOldStoreOrTheNewOne) {
  if (test::run_command("python3 -c pass").status != 0) GTEST_SKIP() << "there is no python3";
  const TemporaryFolder folder;
  const auto log = write_file(folder / "log.csv", random_log(30000));
  const Outcome done =
      test::run_command(test::source_dir() + "/tools/kill_prepare " + log.string() +
                        " --format csv --replace --times 3 --seed 1"
                        " --program " +
                        test::program());
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_TRUE(has(done, "the next run cleared up")) << done.output;
}

TEST(DataProgram, BenchRunsAndChecksItself) {
  const Outcome outcome = run_program("bench data --megabytes 40 --repeats 1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "both stores are the same")) << outcome.output;
}

}  // namespace
}  // namespace turbogr::data
