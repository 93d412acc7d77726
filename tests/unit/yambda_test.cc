#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/check.h"
#include "turbogr/data/store.h"
#include "turbogr/data/yambda/yambda_files.h"
#include "turbogr/data/yambda/yambda_inputs.h"

namespace turbogr::data {
namespace {

const YambdaOptions kSmall = {.users = 400, .items = 5000, .mean_length = 300, .seed = 3};

struct Listens {
  std::vector<float> chances, labels;
  double recommended = 0, listened_recommended = 0, listened_own = 0;
};

Listens all_listens(const YambdaWorld& world) {
  Listens listens;
  double counts[2] = {}, listened[2] = {};
  YambdaHistory history;
  for (std::int64_t user = 0; user < world.num_users(); ++user) {
    world.generate(user, history);
    for (std::size_t i = 0; i < history.items.size(); ++i) {
      if (history.types[i] != YambdaEvent::kListen) continue;
      const bool half = history.played_pct[i] >= kYambdaListened;
      counts[history.organic[i]] += 1;
      listened[history.organic[i]] += half ? 1 : 0;
      listens.chances.push_back(history.chance[i]);
      listens.labels.push_back(half ? 1.0f : 0.0f);
    }
  }
  listens.recommended = counts[0] / (counts[0] + counts[1]);
  listens.listened_recommended = listened[0] / counts[0];
  listens.listened_own = listened[1] / counts[1];
  return listens;
}

// Pairs of a positive and a negative in the right order.
double auc(const std::vector<float>& scores, const std::vector<float>& labels) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return scores[i]; });
  double negatives = 0, positives = 0, pairs = 0;
  for (const std::size_t i : order) {
    if (labels[i] > 0) {
      pairs += negatives;
      ++positives;
    } else {
      ++negatives;
    }
  }
  return pairs / (positives * negatives);
}

TEST(Yambda, ItsListensAreAsPredictableAsItSays) {
  for (const double wanted : {0.70, 0.80}) {
    YambdaOptions options = kSmall;
    options.bayes_auc = wanted;
    const YambdaWorld world(options);
    EXPECT_NEAR(world.bayes_auc(), wanted, 1e-3);
    const Listens listens = all_listens(world);
    EXPECT_NEAR(auc(listens.chances, listens.labels), wanted, 0.01);
    EXPECT_NEAR(listens.recommended, 0.483, 0.01);
    EXPECT_NEAR(listens.listened_recommended, 0.681, 0.02);
    EXPECT_NEAR(listens.listened_own, 0.587, 0.02);
  }
}

TEST(Yambda, HasTheOriginalsLengthsTracksAndTimes) {
  const YambdaWorld world({.users = 200, .seed = 1});
  EXPECT_NEAR(static_cast<double>(world.num_events()) / 200, 4786, 150);
  const YambdaCatalogue& catalogue = world.catalogue();
  EXPECT_GT(catalogue.num_items(), 50'000);
  EXPECT_NEAR(
      static_cast<double>(catalogue.num_items()) / static_cast<double>(catalogue.num_artists()),
      7.2, 1.0);
  EXPECT_NEAR(
      static_cast<double>(catalogue.num_items()) / static_cast<double>(catalogue.num_albums()),
      2.57, 0.6);
  YambdaHistory history;
  std::int64_t sessions = 0;
  for (std::int64_t user = 0; user < 50; ++user) {
    world.generate(user, history);
    ASSERT_EQ(std::ssize(history.items), world.offset(user + 1) - world.offset(user));
    for (std::size_t i = 0; i < history.times.size(); ++i) {
      ASSERT_EQ(history.times[i] % 5, 0);
      ASSERT_GE(history.times[i], 0);
      ASSERT_LE(history.times[i], kYambdaSeconds);
      if (i == 0) continue;
      ASSERT_GE(history.times[i], history.times[i - 1]);
      sessions += history.times[i] - history.times[i - 1] > 1800 ? 1 : 0;
    }
  }
  EXPECT_NEAR(static_cast<double>(world.offset(50)) / static_cast<double>(sessions), 18.9, 4);
}

TEST(Yambda, AFewTracksHaveHalfOfTheListens) {
  const YambdaCatalogue catalogue(100'000, 7);
  std::vector<std::int64_t> counts(100'000);
  for (int i = 0; i < 200'000; ++i) ++counts[catalogue.item_at((i + 0.5) / 200'000)];
  std::ranges::sort(counts, std::greater());
  const auto top = std::accumulate(counts.begin(), counts.begin() + 1000, std::int64_t{0});
  EXPECT_NEAR(static_cast<double>(top) / 200'000, 0.498, 0.02);
}

std::string all_bytes(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::string all;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    all += file.filename().string();
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

TEST(Yambda, AStoreHasItsFeaturesAndTheSameBytesForAnyThreads) {
  const test::TemporaryFolder folder;
  const YambdaWorld world({.users = 60, .items = 500, .mean_length = 80, .seed = 5});
  ThreadPool one(1), three(3);
  write_yambda_store(world, one, folder.path() / "one", {.numbers = true});
  write_yambda_store(world, three, folder.path() / "three", {.numbers = true});
  EXPECT_EQ(all_bytes(folder.path() / "one"), all_bytes(folder.path() / "three"));
  const Store store(folder.path() / "one");
  store.verify();
  EXPECT_EQ(store.num_users(), 60);
  EXPECT_EQ(store.num_events(), world.num_events());
  YambdaHistory history;
  world.generate(7, history);
  const auto user = store.user_ids().find(std::int64_t{8});
  ASSERT_TRUE(user.has_value());
  const FeatureColumn organic = store.feature(FeatureOwner::kEvent, "is_organic");
  const FeatureColumn artist = store.feature(FeatureOwner::kItem, "artist_id");
  const auto first = static_cast<std::int64_t>(store.offsets()[static_cast<std::size_t>(*user)]);
  for (std::size_t i = 0; i < history.items.size(); ++i) {
    const std::int64_t event = first + static_cast<std::int64_t>(i);
    EXPECT_EQ(organic.codes[static_cast<std::size_t>(event)], history.organic[i] + 1);
    const auto item = store.item_ids().find(std::int64_t{history.items[i]} + 1);
    ASSERT_TRUE(item.has_value());
    const std::int32_t code = artist.codes[static_cast<std::size_t>(*item)];
    const std::int32_t wanted = world.catalogue().artist(history.items[i]);
    if (wanted == 0) {
      EXPECT_EQ(code, 0);
    } else {
      EXPECT_EQ(artist.value(code), std::to_string(wanted));
    }
  }
}

TEST(Yambda, FlatFilesHaveTheEventsAndThePublishedColumns) {
  const test::TemporaryFolder folder;
  const YambdaWorld world({.users = 5, .items = 100, .mean_length = 20, .seed = 5});
  ThreadPool pool(2);
  write_yambda_csv(world, pool, folder.path());
  std::ifstream in(folder.path() / "multi_event.csv");
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line,
            "uid,timestamp,item_id,is_organic,played_ratio_pct,track_length_seconds,event_type");
  std::int64_t rows = 0;
  while (std::getline(in, line)) ++rows;
  EXPECT_EQ(rows, world.num_events());
  EXPECT_THROW(write_yambda_csv(world, pool, folder.path()), Error);  // they are there
}

TEST(Yambda, ItsFilesAreOptionsOfAnyLog) {
  const test::TemporaryFolder folder;
  const auto csv = test::write_file(folder / "multi_event.csv", "uid,timestamp\n");
  test::write_file(folder / "artist_item_mapping.csv.gz", "");
  PrepareOptions asked{.format = LogFormat::kYambda, .inputs = {folder.path()}};
  asked.columns.labels = {"played_ratio_pct>=90"};
  asked.item_tables = {folder / "own.csv"};
  std::vector<std::string> remarks;
  const PrepareOptions options = yambda_options(asked, remarks);
  EXPECT_EQ(options.format, LogFormat::kCsv);
  EXPECT_EQ(options.inputs, std::vector<std::filesystem::path>{csv});
  EXPECT_EQ(options.columns.labels.size(), 4u);
  EXPECT_EQ(options.columns.labels.back(), "played_ratio_pct>=90");
  EXPECT_EQ(options.columns.features, std::vector<std::string>{"is_organic:category"});
  EXPECT_EQ(options.item_features, std::vector<std::string>{"artist_id:category"});
  ASSERT_EQ(options.item_tables.size(), 2u);  // the last row about an item counts: the user's own
  EXPECT_FALSE(options.item_tables[0].kept);
  EXPECT_EQ(options.item_tables[1].path, folder / "own.csv");
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("no album_item_mapping"), std::string::npos) << remarks[0];

  remarks.clear();
  asked.shards = 2;
  EXPECT_EQ(yambda_options(asked, remarks).item_tables.size(), 1u);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("a shard takes no tables"), std::string::npos) << remarks[0];
  asked.inputs.push_back(test::write_file(folder / "other.parquet", "PAR1"));
  EXPECT_NE(test::message_of([&] { yambda_options(asked, remarks); }).find("one is Parquet"),
            std::string::npos);
}

TEST(Yambda, AFileOfOneTypeSaysItByItsName) {
  const test::TemporaryFolder folder;
  std::vector<std::string> remarks;
  const auto options_of = [&](std::vector<std::filesystem::path> inputs) {
    return yambda_options({.format = LogFormat::kYambda, .inputs = std::move(inputs)}, remarks);
  };
  EXPECT_NE(test::message_of([&] { options_of({folder.path()}); }).find("holds no multi_event"),
            std::string::npos);
  const auto likes = test::write_file(folder / "likes.csv.gz", "");
  EXPECT_EQ(options_of({folder.path()}).inputs, std::vector<std::filesystem::path>{likes});
  EXPECT_TRUE(options_of({likes}).columns.labels.empty());
  const auto listens = test::write_file(folder / "listens.parquet", "PAR1");
  const std::vector<std::string> wanted = {"listen_plus=played_ratio_pct>=50",
                                           "skip=!played_ratio_pct>=50"};
  EXPECT_EQ(options_of({listens}).columns.labels, wanted);
  const auto refused = [&](std::vector<std::filesystem::path> inputs, const char* words) {
    const std::string message = test::message_of([&] { options_of(std::move(inputs)); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused({folder.path()}, "no multi_event but 'listens.parquet' and 1 others");
  const auto dislikes = test::write_file(folder / "dislikes.csv", "");
  refused({dislikes, likes}, "give multi_event, or files of one type");
  const auto all = test::write_file(folder / "multi_event.csv", "");
  refused({all, likes}, "give multi_event, or files of one type");
  EXPECT_EQ(options_of({folder.path()}).inputs, std::vector<std::filesystem::path>{all});
}

TEST(Yambda, RefusesWorldsThatCannotBe) {
  EXPECT_THROW(YambdaWorld({.users = 0}), Error);
  EXPECT_THROW(YambdaWorld({.users = 5, .bayes_auc = 0.4}), Error);
  EXPECT_THROW(YambdaWorld({.users = 5, .items = 3}), Error);
}

}  // namespace
}  // namespace turbogr::data
