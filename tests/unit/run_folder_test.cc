#include "turbogr/run/run_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"

namespace turbogr::run {
namespace {

using test::message_of;

bool refused(const Config& config, const char* why) {
  return message_of([&] { open_run_folder(config); }).find(why) != std::string::npos;
}

TEST(RunFolder, ANewRunWantsAnEmptyPlace) {
  const test::TemporaryFolder folder;
  Config config;
  EXPECT_TRUE(refused(config, "run.dir is not set"));
  config.run.dir = folder / "a/b";
  open_run_folder(config);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b"));
  open_run_folder(config);  // still empty
  test::write_file(folder / "a/b/metrics.jsonl", "");
  EXPECT_TRUE(refused(config, "is not empty; go on with --run.resume=true"));
  config.run.resume = true;
  open_run_folder(config);
}

TEST(RunFolder, IsCheckedWithoutBeingMade) {
  const test::TemporaryFolder folder;
  Config config;
  EXPECT_NE(message_of([&] { check_run_folder(config); }).find("run.dir is not set"),
            std::string::npos);
  config.run.dir = folder / "run";
  check_run_folder(config);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  std::filesystem::create_directory(folder / "run");
  test::write_file(folder / "run/metrics.jsonl", "");
  EXPECT_NE(message_of([&] { check_run_folder(config); }).find("is not empty"), std::string::npos);
}

TEST(RunFolder, AFileIsNoFolder) {
  const test::TemporaryFolder folder;
  Config config;
  config.run.dir = test::write_file(folder / "file", "x");
  EXPECT_TRUE(refused(config, "is not a folder"));
  config.run.resume = true;
  EXPECT_TRUE(refused(config, "is not a folder"));
  config.run.dir = folder / "file/below";
  EXPECT_TRUE(refused(config, "cannot make the run folder"));
}

TEST(RunFolder, TwoRunsDoNotShareOne) {
  const test::TemporaryFolder folder;
  Config config;
  config.run.dir = folder / "run";
  {
    const RunFolder held = open_run_folder(config);
    EXPECT_TRUE(refused(config, "is in use by another run"));
  }
  open_run_folder(config);
}

TEST(RunFolder, NoticesThatItWasRemovedOrReplaced) {
  const test::TemporaryFolder folder;
  Config config;
  config.run.dir = folder / "run";
  const RunFolder held = open_run_folder(config);
  held.check_in_place();
  const auto gone = [&] {
    return message_of([&] {
             held.check_in_place();
           }).find("no longer the folder this run began in") != std::string::npos;
  };
  std::filesystem::rename(folder / "run", folder / "moved");
  EXPECT_TRUE(gone());
  const RunFolder other = open_run_folder(config);
  EXPECT_TRUE(gone());
  other.check_in_place();
  std::filesystem::remove_all(folder / "run");
  std::filesystem::rename(folder / "moved", folder / "run");
  held.check_in_place();
}

TEST(RunFolder, SaysWhyItsConfigCannotBeWritten) {
  const std::string message = message_of([] { write_run_config({"/proc", {}}, Config()); });
  EXPECT_EQ(message.find("disk"), std::string::npos) << message;
  EXPECT_NE(message.find("cannot create '/proc/config.toml"), std::string::npos) << message;
}

}  // namespace
}  // namespace turbogr::run
