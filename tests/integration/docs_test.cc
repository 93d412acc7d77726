// What the documents say can be done: the program knows every command and option in them, make
// knows every word, and every relative link leads somewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> documents() {
  const fs::path source = test::source_dir();
  std::vector<fs::path> found = {source / "README.md", source / "turbogr" / "README.md",
                                 source / "CONTRIBUTING.md", source / "CHANGELOG.md",
                                 source / "SECURITY.md"};
  for (const auto& entry : fs::directory_iterator(source / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  return found;
}

// Lines of fenced blocks, of sh alone or of any that name no other language, comments cut off,
// continued lines joined.
std::vector<std::string> commands_of(const std::string& text, bool shell_only = true) {
  std::vector<std::string> commands;
  std::istringstream lines(text);
  bool fenced = false;
  bool shell = false;
  bool continued = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      shell = fenced && (line == "```sh" || (!shell_only && line == "```"));
      continue;
    }
    if (!shell) continue;
    line = std::regex_replace(line, std::regex("\\s+#.*$|^#.*$"), "");
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.pop_back();
    if (continued) {
      commands.back() += line;
    } else if (!line.empty()) {
      commands.push_back(line);
    }
    continued = goes_on;
  }
  return commands;
}

TEST(Docs, NameOnlyCommandsAndOptionsThatExist) {
  const std::string makefile = text_of(fs::path(test::source_dir()) / "Makefile");
  int seen = 0;
  for (const fs::path& path : documents()) {
    for (const std::string& command : commands_of(text_of(path))) {
      SCOPED_TRACE(path.string() + ": " + command);
      if (std::smatch word; std::regex_search(command, word, std::regex("^make ([a-z0-9-]+)"))) {
        EXPECT_NE(makefile.find(fmt::format("\n{}:", word[1].str())), std::string::npos);
        ++seen;
      }
    }
    for (const std::string& command : commands_of(text_of(path), false)) {
      SCOPED_TRACE(path.string() + ": " + command);
      std::smatch call;
      const std::regex calls_program("^(?:[^;|]*[ ;])?(?:[a-z-]*/)?turbogr( [a-z][^;|]*)");
      if (!std::regex_search(command, call, calls_program)) continue;
      ++seen;
      // Help comes before complaints about options, so those are looked up in its text.
      const std::string arguments =
          std::regex_replace(call[1].str(), std::regex("[\\[\\]]|\\.\\.\\.|  .*"), "");
      const auto help = test::run_program(arguments + " --help");
      EXPECT_EQ(help.status, 0) << help.output;
      const std::regex option("\\s(--[a-z][a-z-]*)(?=[\\s=]|$)");
      for (std::sregex_iterator at(arguments.begin(), arguments.end(), option), end; at != end;
           ++at) {
        EXPECT_NE(help.output.find((*at)[1].str()), std::string::npos) << (*at)[1].str();
      }
    }
  }
  EXPECT_GE(seen, 3);
}

// Those that a test can run: not make, apt-get or cmake, nor measurements of a GPU.
bool runs_here(const std::string& command) {
  if (command.find("build-cuda/turbogr bench") != std::string::npos) return false;
  return std::regex_search(command, std::regex("^printf |build(-cuda)?/turbogr "));
}

// What the pages take for granted: a log of one's own, lists of ids, the demo's store, the sources.
class DocsCommands : public ::testing::TestWithParam<const char*> {
 protected:
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();

  void SetUp() override {
    for (const char* build : {"/build", "/build-cuda"}) {
      fs::create_symlink(fs::path(test::program()).parent_path(), root_ + build);
    }
    fs::create_symlink(fs::path(test::source_dir()) / "configs", root_ + "/configs");
    std::string log = "userId,movieId,timestamp\n";
    const std::vector<int> movies = {17, 99, 1203, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    for (int user = 30; user < 60; ++user) {
      for (int event = 0; event < 8; ++event) {
        log += fmt::format("{},{},{}\n", user, movies[(user * 5 + event) % movies.size()],
                           1'000'000 + 1000 * event + user);
      }
    }
    test::write_file(folder_ / "ratings.csv", log);
    test::write_file(folder_ / "ids.txt", "31\n42\n");
    test::write_file(folder_ / "sold_out.txt", "99\n");
    test::write_file(folder_ / "clicks.txt", "4\n5\n");
    const auto demo = test::run_program(
        "data synth --users 60 --items 80 --mean-length 12 --max-length 20 --threads 1 --out " +
        root_ + "/demo/store");
    ASSERT_EQ(demo.status, 0) << demo.output;
  }

  // As it stands, but for what tests have no time for, and what root and few cores ask of mpirun.
  static std::string as_run_here(std::string command) {
    command = std::regex_replace(command, std::regex("^mpirun"),
                                 "mpirun --oversubscribe --allow-run-as-root");
    command = std::regex_replace(command, std::regex("--trials 20"), "--trials 2");
    command = std::regex_replace(command, std::regex("--users [12]000"), "--users 40");
    command = std::regex_replace(command, std::regex("--nodes 16 --gpus 8"), "--nodes 1 --gpus 2");
    command = std::regex_replace(command, std::regex("--ranks 128"), "--ranks 4");
    command = std::regex_replace(command, std::regex("--html"), "--curve-ranks 4 --html");
    command = std::regex_replace(command, std::regex("--train.device=cuda"), "--train.device=cpu");
    command =
        std::regex_replace(command, std::regex("bench negatives"),
                           "bench negatives --tokens 64 --width 32 --items 64 --seconds 0.01");
    if (std::regex_search(command, std::regex("turbogr (train|tune) "))) {
      command += " --train.peak_tflops=1 --train.epochs=2";
    }
    return command;
  }

  void run_all(const std::string& page) {
    for (const std::string& command : commands_of(text_of(fs::path(test::source_dir()) / page))) {
      if (!runs_here(command)) continue;
      const test::Outcome outcome =
          test::run_command("cd " + root_ + " && " + as_run_here(command));
      EXPECT_EQ(outcome.status, 0) << page << ": " << command << "\n" << outcome.output;
    }
  }
};

TEST_P(DocsCommands, Run) {
  if (GetParam() == std::string("docs/evaluation.md"))
    run_all("README.md");  // it goes on from there
  run_all(GetParam());
}

constexpr const char* kPages[] = {"README.md",           "docs/data_format.md",
                                  "docs/distributed.md", "docs/evaluation.md",
                                  "docs/features.md",    "docs/gpu.md",
                                  "docs/negatives.md",   "docs/planning.md",
                                  "docs/ranking.md",     "docs/synthetic_data.md",
                                  "docs/tuning.md"};
INSTANTIATE_TEST_SUITE_P(Of, DocsCommands, ::testing::ValuesIn(kPages), [](const auto& page) {
  const std::string name = fs::path(page.param).stem();
  return name;
});

TEST(Docs, EveryPageWithCommandsIsRun) {
  std::set<std::string> with_commands;
  for (const fs::path& path : documents()) {
    const std::vector<std::string> commands = commands_of(text_of(path));
    if (std::any_of(commands.begin(), commands.end(), runs_here)) {
      with_commands.insert(fs::relative(path, test::source_dir()));
    }
  }
  EXPECT_EQ(with_commands, std::set<std::string>(std::begin(kPages), std::end(kPages)));
}

// Files of the names and columns of the public sets, small ones: the ranking page's plain block
// goes from these to trained models. Only `turbogr` is where an installed program is.
class DocsPublicSets : public ::testing::Test {
 protected:
  static constexpr int kUsers = 40, kItems = 30, kEvents = 24;
  test::TemporaryFolder folder_;
  std::string root_ = folder_.path().string();

  static int item_of(int user, int event) { return (user * 7 + event * 3) % kItems + 1; }
  static int stars_of(int user, int event) { return (user + event) % 5 + 1; }

  // A line for each of 1 to `count`.
  void write_lines(const std::string& name, std::string text, int count,
                   const std::function<std::string(int)>& line) const {
    for (int i = 1; i <= count; ++i) text += line(i);
    test::write_file(root_ + "/" + name, text);
  }
  void write_events(const std::string& name, const std::string& header,
                    const std::function<std::string(int, int)>& line) const {
    write_lines(name, header, kUsers, [&](int user) {
      std::string lines;
      for (int event = 0; event < kEvents; ++event) lines += line(user, event);
      return lines;
    });
  }

  void write_movielens() const {
    fs::create_directory(root_ + "/ml-1m");
    write_events("ml-1m/chrono.csv", "user_id,item_id,rating\n", [](int user, int event) {
      return fmt::format("{},{},{}\n", user, item_of(user, event), stars_of(user, event));
    });
    write_lines("ml-1m/movies.dat", "", kItems, [](int item) {
      return fmt::format("{0}::Film {0} (1990)::{1}\n", item, item % 2 ? "Drama|War" : "Comedy");
    });
    write_lines("ml-1m/users.dat", "", kUsers, [](int user) {
      return fmt::format("{}::{}::{}::{}::{}\n", user, user % 2 ? "F" : "M", 18 + user % 3,
                         user % 20, 10'000 + user);
    });
    const test::Outcome packed =
        test::run_command("cd " + root_ + " && tar cf ml-1m.tar ml-1m && rm -r ml-1m");
    ASSERT_EQ(packed.status, 0) << packed.output;
    fs::create_directory(root_ + "/ml-latest-small");
    write_events("ml-latest-small/ratings.csv", "userId,movieId,rating,timestamp\r\n",
                 [](int user, int event) {
                   return fmt::format("{},{},{},{}\r\n", user, item_of(user, event),
                                      stars_of(user, event) - 0.5, 1'000'000 + 100 * event);
                 });
    write_lines("ml-latest-small/movies.csv", "movieId,title,genres\n", kItems, [](int item) {
      return fmt::format("{0},\"Film {0}, The\",{1}\n", item, item % 2 ? "Drama|War" : "Comedy");
    });
  }

  void write_kuairand() const {
    constexpr std::int64_t kTestFrom = 1'651'766'400'000;  // as the config has it
    const std::string folder = "kuairand-pure/";
    fs::create_directory(root_ + "/" + folder);
    write_events(folder + "log_standard_4_25_to_5_08_pure.csv",
                 "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,"
                 "is_forward,is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,"
                 "comment_stay_time,is_profile_enter,is_rand,tab\n",
                 [](int user, int event) {
                   const int odd = (user + event) % 2, third = (user + event) % 3 == 0;
                   return fmt::format(
                       "{},{},20220505,1200,{},{},{},{},{},{},{},{},{},9000,0,0,{},0,{}\n", user,
                       item_of(user, event), kTestFrom + (event - 18) * std::int64_t{3'600'000},
                       odd, third, odd, third, odd, third, odd, 1000 * event, third, event % 4);
                 });
    write_lines(folder + "video_features_basic_pure.csv",
                "video_id,author_id,video_type,video_duration,tag\n", kItems, [](int item) {
                  return fmt::format("{},{},NORMAL,{},\"{},{}\"\n", item, item % 7, 1000 * item,
                                     item % 5, item % 3);
                });
    write_lines(folder + "user_features_pure.csv",
                "user_id,user_active_degree,follow_user_num_range,fans_user_num_range,"
                "friend_user_num_range,register_days_range\n",
                kUsers, [](int user) {
                  return fmt::format("{},full_active,\"(0,10]\",\"[1,10)\",0,{}\n", user, user % 4);
                });
  }
};

TEST_F(DocsPublicSets, OfRankingArePreparedAndTrained) {
  write_movielens();
  write_kuairand();
  fs::create_symlink(fs::path(test::source_dir()) / "configs", root_ + "/configs");
  const std::string here =
      "cd " + root_ + " && PATH=" + fs::path(test::program()).parent_path().string() + ":$PATH && ";
  int run = 0;
  const fs::path page = fs::path(test::source_dir()) / "docs" / "ranking.md";
  for (std::string command : commands_of(text_of(page), false)) {
    if (!std::regex_search(command, std::regex("^(tar|awk|turbogr) "))) continue;
    if (command.starts_with("turbogr train")) command += " --train.peak_tflops=1 --train.epochs=1";
    const test::Outcome outcome = test::run_command(here + command);
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output;
    ++run;
  }
  EXPECT_EQ(run, 7);
}

TEST(Docs, LinkOnlyToWhatIsThere) {
  const std::regex link("\\]\\(([^)#: ]+)(#[^)]*)?\\)");
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    EXPECT_FALSE(text.empty()) << path;
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      EXPECT_TRUE(fs::exists(path.parent_path() / (*at)[1].str())) << path << ": " << at->str();
    }
  }
}

TEST(Docs, NamesOfFilesAreFilesOfTheTree) {
  const std::regex name(
      "`((turbogr|tests|bench|apps|tools|docs|cmake)/[A-Za-z0-9_./-]+\\.[a-z]+)`");
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) {
      EXPECT_TRUE(fs::exists(fs::path(test::source_dir()) / (*at)[1].str())) << path << at->str();
    }
  }
}

}  // namespace
}  // namespace turbogr
