#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/checksum.h"
#include "turbogr/data/store.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::message_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

// Three users (the middle one empty), string item ids, signals and one column of numbers.
void write_small(const fs::path& path, bool overwrite = false) {
  StoreWriter writer(path,
                     {.time_unit = TimeUnit::kMilliseconds,
                      .num_items = 3,
                      .user_ids = IdKind::kInt64,
                      .item_ids = IdKind::kString,
                      .signals = {"click", "like"},
                      .numbers = {"play"}},
                     overwrite);
  for (const char* id : {"a", "b", "zz"}) writer.add_item_id(std::string_view(id));
  const std::vector<std::int64_t> items = {2, 0, 1};
  const std::vector<std::int64_t> times = {10, 10, 20};
  const std::vector<std::uint32_t> signals = {1, 0, 3};
  const std::vector<float> play = {0.5f, NAN, 2.0f};
  const auto part = [&](std::size_t begin, std::size_t count) {
    return Events{.items = std::span(items).subspan(begin, count),
                  .times = std::span(times).subspan(begin, count),
                  .signals = std::span(signals).subspan(begin, count),
                  .numbers = {std::span(play).subspan(begin, count)}};
  };
  writer.add_user(std::int64_t{-7}, part(0, 2));
  writer.begin_user(std::int64_t{3});
  writer.begin_user(std::int64_t{900});
  writer.add_events(part(0, 1));
  writer.add_events(part(1, 2));
  writer.finish();
}

TEST(Checksum, IsXxh64WhateverThePieces) {
  EXPECT_EQ(checksum_of("", 0), "ef46db3751d8e999");
  EXPECT_EQ(checksum_of("abc", 3), "44bc2cf5ad770999");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  Checksum pieces;
  for (std::size_t at = 0, step = 1; at < text.size(); at += step, step = step % 41 + 3) {
    pieces.update(text.data() + at, std::min(step, text.size() - at));
  }
  EXPECT_EQ(pieces.hex(), checksum_of(text.data(), text.size()));
}

TEST(Store, GivesBackWhatWasWritten) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const Store store(folder / "s");
  EXPECT_EQ(store.num_users(), 3);
  EXPECT_EQ(store.num_items(), 3);
  EXPECT_EQ(store.num_events(), 5);
  EXPECT_EQ(std::vector<std::int64_t>(store.offsets().begin(), store.offsets().end()),
            (std::vector<std::int64_t>{0, 2, 2, 5}));
  std::vector<std::int64_t> items(5);
  store.read_items(0, items);
  EXPECT_EQ(items, (std::vector<std::int64_t>{2, 0, 2, 0, 1}));
  EXPECT_EQ(store.items32()[4], 1);
  EXPECT_EQ(store.times()[4], 20);
  std::vector<std::uint32_t> bits(2);
  store.read_signals(3, bits);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(store.signal_bit("like"), 1);
  EXPECT_EQ(store.numbers("play")[4], 2.0f);
  EXPECT_TRUE(std::isnan(store.numbers("play")[3]));
  EXPECT_EQ(store.time_unit(), TimeUnit::kMilliseconds);
  store.verify();
}

// Opening reads no event; whoever reads one later is told.
TEST(Store, FlippedBytesAreFoundWhereTheyAreRead) {
  const TemporaryFolder folder;
  const auto flipped = [&](const char* file, std::size_t at, char byte) {
    write_small(folder / "s", /*overwrite=*/true);
    std::string bytes = read_file(folder / "s" / file);
    bytes.at(at) = byte;
    write_file(folder / "s" / file, bytes);
    return Store(folder / "s");
  };
  std::vector<std::int64_t> items(5);
  const Store high = flipped("items.bin", 4 * 3, 3),
              below = flipped("items.bin", 4 * 3 + 3, '\xff');
  EXPECT_TRUE(has(message_of([&] { high.read_items(0, items); }), "event 3 names item 3, and"));
  EXPECT_TRUE(has(message_of([&] { below.read_items(2, std::span(items).first(2)); }),
                  "event 3 names item -"));
  high.read_items(0, std::span(items).first(3));
  for (const char byte : {'\x06', '\x7f', '\xff'}) {
    const Store store = flipped("user_offsets.bin", byte == 6 ? 8 : 15, byte);
    EXPECT_TRUE(has(message_of([&] { store.events_of(0); }), "offsets of user 0 are damaged"));
    EXPECT_EQ(store.events_of(2).count, 3);
    EXPECT_TRUE(has(message_of([&] { store.verify(); }), "has checksum"));
  }
}

TEST(Store, AManifestThatIsAPipeIsNone) {
  const TemporaryFolder folder;
  write_small(folder / "s");
  fs::remove(folder / "s/manifest.json");
  ASSERT_EQ(::mkfifo((folder / "s/manifest.json").c_str(), 0600), 0);
  EXPECT_TRUE(has(message_of([&] { Store store(folder / "s"); }), "it has no manifest.json"));
}

TEST(Store, ALogInItsPlaceIsToldHowToBecomeOne) {
  const TemporaryFolder folder;
  write_file(folder / "log.csv.gz", "\x1f\x8b");
  EXPECT_TRUE(has(message_of([&] { Store store(folder / "log.csv.gz"); }),
                  "make one of it with `turbogr data prepare log.csv.gz --out STORE`"));
}

TEST(Store, FindsOriginalIdsBothWays) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const Store store(folder / "s");
  EXPECT_EQ(store.user_ids().integer(0), -7);
  EXPECT_EQ(store.user_ids().find(std::int64_t{900}), 2);
  EXPECT_EQ(store.user_ids().find("900"), 2);
  EXPECT_EQ(store.user_ids().find("nine"), std::nullopt);
  EXPECT_EQ(store.user_ids().find(std::int64_t{4}), std::nullopt);
  EXPECT_EQ(store.item_ids().string(2), "zz");
  EXPECT_EQ(store.item_ids().text(1), "b");
  EXPECT_EQ(store.item_ids().find("zz"), 2);
  EXPECT_EQ(store.item_ids().find("c"), std::nullopt);
  const IdMap range = IdMap::range(4);
  EXPECT_EQ(range.find(std::int64_t{3}), 3);
  EXPECT_EQ(range.find(std::int64_t{4}), std::nullopt);
  EXPECT_TRUE(has(message_of([&] { range.integer(4); }), "not one of 4"));
  EXPECT_TRUE(has(message_of([&] { range.string(0); }), "numbers"));
  EXPECT_TRUE(has(message_of([&] { store.item_ids().integer(0); }), "strings"));
}

TEST(Store, SameContentGivesTheSameBytes) {
  TemporaryFolder folder;
  write_small(folder / "one");
  write_small(folder / "two");
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "one")) {
    ++files;
    EXPECT_EQ(read_file(entry.path()), read_file(folder / "two" / entry.path().filename()));
  }
  EXPECT_EQ(files, 9);
}

TEST(Store, HoldsNothingAndStillOpens) {
  TemporaryFolder folder;
  StoreWriter writer(folder / "s", {});
  writer.finish();
  const Store store(folder / "s");
  EXPECT_EQ(store.num_events(), 0);
  EXPECT_EQ(store.offsets().size(), 1u);
  store.verify();
  EXPECT_TRUE(has(message_of([&] { store.times(); }), "order of events"));
}

// Files of the right sizes without content: opening must not look at the events.
TEST(Store, OpensThreeHundredMillionEventsAtOnce) {
  TemporaryFolder folder;
  constexpr std::int64_t kEvents = 300'000'000;
  fs::create_directory(folder / "s");
  Manifest manifest{.users = 27285, .items = 32'000'000, .events = kEvents};
  manifest.time_unit = TimeUnit::kMilliseconds;
  const auto add = [&](const std::string& name, const std::string& type, std::int64_t bytes) {
    write_file(folder / "s" / (name + ".bin"), "");
    fs::resize_file(folder / "s" / (name + ".bin"), static_cast<std::uintmax_t>(bytes));
    manifest.columns.push_back({.name = name, .file = name + ".bin", .type = type, .bytes = bytes});
  };
  add("user_offsets", "int64", 27286 * 8);
  add("items", "int32", kEvents * 4);
  add("times", "int64", kEvents * 8);
  std::fstream offsets(folder / "s" / "user_offsets.bin",
                       std::ios::in | std::ios::out | std::ios::binary);
  offsets.seekp(27285 * 8);
  offsets.write(reinterpret_cast<const char*>(&kEvents), 8);
  offsets.close();
  write_file(folder / "s" / "manifest.json", manifest.to_json());
  rusage before = {};
  getrusage(RUSAGE_SELF, &before);
  const auto begin = std::chrono::steady_clock::now();
  const Store store(folder / "s");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  rusage after = {};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(store.items32().size(), static_cast<std::size_t>(kEvents));
  EXPECT_LT(seconds.count(), 5);  // milliseconds, but for a machine under load
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024);
}

TEST(Store, SaysWhatItHasWhenAskedForSomethingElse) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const Store store(folder / "s");
  EXPECT_TRUE(has(message_of([&] { store.signal_bit("hate"); }), "it has: click, like"));
  EXPECT_TRUE(has(message_of([&] { store.numbers("rating"); }), "it has: play"));
  EXPECT_TRUE(has(message_of([&] { store.side_table("users"); }), "no side table 'users'"));
  EXPECT_TRUE(has(message_of([&] { store.items64(); }), "int32"));
  std::vector<std::int64_t> items(3);
  EXPECT_TRUE(has(message_of([&] { store.read_items(3, items); }), "not all among"));
}

TEST(Store, RefusesWhatIsNotAStore) {
  TemporaryFolder folder;
  EXPECT_TRUE(has(message_of([&] { Store(folder / "none"); }), "there is no store"));
  EXPECT_TRUE(has(message_of([&] { Store(folder.path()); }), "no manifest.json"));
  fs::create_directory(folder / "s");
  write_file(folder / "s" / "manifest.json", "{\"format\": \"other\"}");
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "not the manifest"));
  write_file(folder / "s" / "manifest.json", "{\"format");
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "not JSON"));
  write_file(folder / "s" / "manifest.json", "[]");
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "not the manifest"));
  write_file(folder / "s" / "manifest.json",
             "{\"format\": \"turbogr sequence store\", \"version\": 3}");
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "newer turbogr"));
  write_file(folder / "s" / "manifest.json",
             "{\"format\": \"turbogr sequence store\", \"version\": 1}");
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "checksum"));
}

TEST(Store, RefusesCountsBeyondAnyDisk) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "s");
  // One more than these, or eight times as many, is no longer a 64-bit number.
  for (const std::int64_t count :
       {std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 61}) {
    write_file(folder / "s" / "manifest.json", Manifest{.users = count}.to_json());
    const std::string message = message_of([&] { Store(folder / "s"); });
    EXPECT_TRUE(has(message, "is not a whole manifest: a count of")) << message;
  }
}

TEST(Store, NoticesAChangedManifestAndShortOrMissingFiles) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const std::string manifest = read_file(folder / "s" / "manifest.json");
  std::string changed = manifest;
  changed.replace(changed.find("\"like\""), 6, "\"hate\"");
  write_file(folder / "s" / "manifest.json", changed);
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "damaged"));
  write_file(folder / "s" / "manifest.json", manifest);
  const std::string items = read_file(folder / "s" / "items.bin");
  write_file(folder / "s" / "items.bin", items.substr(1));
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "has 19 bytes, the manifest says 20"));
  fs::remove(folder / "s" / "items.bin");
  EXPECT_TRUE(has(message_of([&] { Store(folder / "s"); }), "is missing"));
}

TEST(Store, VerifyFindsOneChangedBitInAnyFile) {
  TemporaryFolder folder;
  write_small(folder / "s");
  const Manifest manifest = Store(folder / "s").manifest();
  for (const FileEntry& entry : manifest.columns) {
    const std::string good = read_file(folder / "s" / entry.file);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 16);
    write_file(folder / "s" / entry.file, bad);
    EXPECT_FALSE(message_of([&] { Store(folder / "s").verify(); }).empty()) << entry.file;
    write_file(folder / "s" / entry.file, good);
  }
  Store(folder / "s").verify();
}

TEST(StoreWriter, LeavesNothingWithoutFinish) {
  TemporaryFolder folder;
  {
    StoreWriter writer(folder / "s", {.num_items = 1});
    EXPECT_TRUE(fs::exists(writer.folder()));
    EXPECT_TRUE(has(message_of([&] { Store store(writer.folder()); }), "interrupted"));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(StoreWriter, ClearsTheLeftoversOfDeadWritersOnly) {
  TemporaryFolder folder;
  fs::create_directory(folder / "s.partial-1");
  write_file(folder / "s.partial-1" / "items.bin", "x");
  fs::create_directory(folder / "other.partial-1");
  fs::create_directory(folder / "s.partial-payment");
  StoreWriter writer(folder / "s", {.num_items = 1});
  EXPECT_FALSE(fs::exists(folder / "s.partial-1"));
  EXPECT_TRUE(fs::exists(folder / "other.partial-1"));
  EXPECT_TRUE(fs::exists(folder / "s.partial-payment"));
  EXPECT_TRUE(has(message_of([&] { StoreWriter again(folder / "s", {}); }), "already"));
  EXPECT_TRUE(fs::exists(writer.folder()));
}

TEST(StoreWriter, ReplacesAStoreOnlyWhenTold) {
  TemporaryFolder folder;
  StoreWriter(folder / "s", {}).finish();
  EXPECT_TRUE(has(message_of([&] { write_small(folder / "s"); }), "--overwrite"));
  fs::create_directory(folder / "mine");
  write_file(folder / "mine" / "thesis.txt", "years of work");
  EXPECT_TRUE(has(message_of([&] { write_small(folder / "mine", true); }), "not a store"));
  EXPECT_TRUE(fs::exists(folder / "mine" / "thesis.txt"));
  fs::remove_all(folder / "mine");
  write_small(folder / "s", /*overwrite=*/true);
  EXPECT_EQ(Store(folder / "s").num_events(), 5);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(StoreWriter, MakesTheFoldersAboveTheStore) {
  TemporaryFolder folder;
  write_small(folder / "stores" / "mine" / "s");
  EXPECT_EQ(Store(folder / "stores" / "mine" / "s").num_events(), 5);
}

TEST(StoreWriter, RefusesWhatCannotBeStored) {
  TemporaryFolder folder;
  const std::vector<std::int64_t> one = {0};
  const std::vector<std::int64_t> big = {9};
  write_file(folder / "file", "in the way");
  EXPECT_TRUE(has(message_of([&] { StoreWriter(folder / "file" / "s", {}); }), "cannot create"));
  EXPECT_TRUE(has(message_of([&] { StoreWriter(folder / "s.partial-3", {}); }), "unfinished"));
  EXPECT_TRUE(has(message_of([&] { StoreWriter(folder / "s", {.num_items = -1}); }), "-1 items"));
  EXPECT_TRUE(has(message_of([&] {
                    StoreWriter(folder / "s", {.signals = std::vector<std::string>(33, "x")});
                  }),
                  "32 signals"));
  EXPECT_TRUE(has(message_of([&] {
                    StoreWriter(folder / "s", {.numbers = {"a b", "a b"}});
                  }),
                  "two columns 'number:a b'"));
  StoreWriter writer(folder / "s", {.time_unit = TimeUnit::kSeconds,
                                    .num_items = 2,
                                    .user_ids = IdKind::kString,
                                    .item_ids = IdKind::kInt64});
  const auto fails = [&](auto call, const char* part) {
    const std::string text = message_of(call);
    EXPECT_TRUE(has(text, part)) << text;
  };
  fails([&] { writer.add_events({.items = one, .times = one}); }, "begin a user");
  fails([&] { writer.begin_user(); }, "give this user's");
  fails([&] { writer.begin_user(std::int64_t{1}); }, "kind string");
  writer.begin_user("b");
  fails([&] { writer.begin_user("b"); }, "must rise");
  fails([&] { writer.add_events({.items = one}); }, "got 0 times");
  fails([&] { writer.add_events({.items = big, .times = one}); }, "item index 9");
  const std::vector<std::uint32_t> bits = {1};
  fails([&] { writer.add_events({.items = one, .times = one, .signals = bits}); }, "signal masks");
  fails([&] { writer.add_events({.items = one, .times = one, .numbers = {{}}}); }, "numbers");
  writer.add_events({.items = one, .times = big});
  fails([&] { writer.add_events({.items = one, .times = one}); }, "oldest first");
  fails([&] { writer.add_item_id("x"); }, "kind int64");
  writer.add_item_id(std::int64_t{5});
  fails([&] { writer.add_item_id(std::int64_t{5}); }, "must rise");
  fails([&] { writer.finish(); }, "got 1 item ids for 2 items");
}

}  // namespace
}  // namespace turbogr::data
