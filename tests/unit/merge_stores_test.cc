// Parts of a log, prepared apart and merged, against the whole log prepared at once.
#include "turbogr/data/merge_stores.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

void expect_same_store(const fs::path& a, const fs::path& b, const std::string& what) {
  Store(b).verify();
  for (const auto& entry : fs::directory_iterator(a)) {
    EXPECT_EQ(read_file(entry.path()), read_file(b / entry.path().filename()))
        << what << ": " << entry.path();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(a), fs::directory_iterator()),
            std::distance(fs::directory_iterator(b), fs::directory_iterator()))
      << what;
}

// Seven files; many events share user and time, so that their order in the input matters.
std::vector<fs::path> write_logs(const TemporaryFolder& folder, bool texts) {
  std::vector<fs::path> files;
  PhiloxStream random(3);
  for (int file = 0; file < 7; ++file) {
    std::string log = "user_id,item_id,timestamp,is_click,rating,tab,dwell\n";
    for (int i = 0; i < 300; ++i) {
      log += fmt::format("{0}{1},{0}{2},{3},{4},{5},{6},{7}\n", texts ? "x" : "",
                         random.below(40) * 1'000'003, random.below(25),
                         1'600'000'000 + random.below(30), random.below(2),
                         random.below(9) == 0 ? "" : std::to_string(random.below(5)),
                         random.below(7) == 0 ? "" : fmt::format("t{}", random.below(12)),
                         random.below(5) == 0 ? "" : fmt::format("{}.25", random.below(90)));
    }
    files.push_back(write_file(folder / fmt::format("log{}.csv", file), log));
  }
  return files;
}

PrepareOptions log_options(const std::vector<fs::path>& files) {
  PrepareOptions options;
  options.inputs = files;
  options.columns.signals = {"is_click"};
  options.columns.numbers = {"rating"};
  options.columns.labels = {"rating>=4"};
  options.columns.features = {"tab", "dwell:number"};
  return options;
}

TEST(MergeStores, GivesTheBytesOfOneProcess) {
  for (const bool texts : {false, true}) {
    const TemporaryFolder folder;
    const std::vector<fs::path> files = write_logs(folder, texts);
    PrepareOptions whole = log_options(files);
    whole.out = folder / "whole";
    prepare(whole);
    PrepareOptions core = whole;
    core.out = folder / "core";
    core.min_user = 20;
    core.min_item = 50;
    core.repeats = Repeats::kDropEvents;
    prepare(core);
    for (const int shards : {1, 3, 7}) {
      std::vector<fs::path> parts;
      for (int shard = 0; shard < shards; ++shard) {
        PrepareOptions part = log_options(files);
        part.shard = shard;
        part.shards = shards;
        part.out = folder / fmt::format("part{}-{}", shards, shard);
        prepare(part);
        parts.push_back(part.out);
      }
      const std::string what = fmt::format("{} shards, texts {}", shards, texts);
      PrepareOptions all;
      all.out = folder / fmt::format("merged{}", shards);
      const PrepareReport report = merge_stores(parts, all);
      EXPECT_EQ(report.events, 2100);
      expect_same_store(whole.out, all.out, what);
      all.out = folder / fmt::format("core{}", shards);
      all.min_user = core.min_user;
      all.min_item = core.min_item;
      all.repeats = core.repeats;
      all.memory_bytes = std::size_t{64} << 20;
      merge_stores(parts, all);
      expect_same_store(core.out, all.out, what + ", core");
    }
  }
}

TEST(MergeStores, OrderOnlyAndTablesOfItems) {
  const TemporaryFolder folder;
  const fs::path items = write_file(folder / "items.csv", "item_id,title\n1,One\n2,Two\n3,Three\n");
  const std::vector<fs::path> logs = {
      write_file(folder / "a.csv", "user_id,item_id\n1,2\n1,3\n2,1\n"),
      write_file(folder / "b.csv", "user_id,item_id\n1,1\n3,3\n")};
  PrepareOptions whole;
  whole.inputs = logs;
  whole.item_tables = {items};
  whole.out = folder / "whole";
  prepare(whole);
  std::vector<fs::path> parts;
  for (const fs::path& log : logs) {
    PrepareOptions part;
    part.inputs = {log};
    part.out = log.string() + ".store";
    prepare(part);
    parts.push_back(part.out);
  }
  PrepareOptions all;
  all.item_tables = {items};
  all.out = folder / "merged";
  merge_stores(parts, all);
  expect_same_store(whole.out, all.out, "order only");
}

TEST(MergeStores, WhatDoesNotFitIsSaid) {
  const TemporaryFolder folder;
  const auto store_of = [&](const std::string& name, const std::string& log) {
    PrepareOptions options;
    options.inputs = {write_file(folder / (name + ".csv"), log)};
    options.out = folder / name;
    prepare(options);
    return options.out;
  };
  const fs::path numbers = store_of("numbers", "user_id,item_id,timestamp\n1,1,5\n");
  const fs::path texts = store_of("texts", "user_id,item_id,timestamp\na,1,5\n");
  PrepareOptions options;
  options.out = folder / "merged";
  EXPECT_NE(message_of([&] {
              merge_stores({numbers, texts}, options);
            }).find("users are texts"),
            std::string::npos);
  EXPECT_NE(message_of([&] { merge_stores({}, options); }).find("Give the stores"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(options.out));
  EXPECT_NE(message_of([&] {
              merge_stores({numbers, folder / "." / "numbers"}, options);
            }).find("is given twice"),
            std::string::npos);
  PrepareOptions over = options;
  over.out = numbers;
  over.overwrite = true;
  EXPECT_NE(message_of([&] { merge_stores({numbers}, over); }).find("choose another --out"),
            std::string::npos);
  const fs::path damaged = store_of("damaged", "user_id,item_id,timestamp\n1,1,5\n1,2,6\n");
  std::string times = read_file(damaged / "times.bin");
  times[0] ^= 1;
  write_file(damaged / "times.bin", times);
  EXPECT_NE(message_of([&] {
              merge_stores({numbers, damaged}, options);
            }).find("damaged"),
            std::string::npos);
  options.inputs = {folder / "numbers.csv"};
  options.shards = 2;
  EXPECT_NE(message_of([&] { prepare(options); }).find("2 shards of 1 log;"), std::string::npos);
}

}  // namespace
}  // namespace turbogr::data
