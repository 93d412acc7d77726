// Configs of the ranking task: named tables, features and tasks, and what becomes of them.
#include "turbogr/run/ranking_setup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/prepare.h"
#include "turbogr/run/config_keys.h"
#include "turbogr/run/named_features.h"

namespace turbogr::run {
namespace {

using test::message_of;
using test::TemporaryFolder;

Config parsed(const std::string& text, const std::vector<Override>& overrides = {}) {
  return parse_config("task = \"ranking\"\n" + text, "run.toml", overrides);
}

TEST(RankingConfig, EntriesKeepTheOrderOfTheFileAndRoundTrip) {
  const Config config = parsed(
      "[features.zebra]\nfrom = \"user\"\n[features.apple]\nfrom = \"item\"\nmost = 3\n"
      "[features.mix]\ncross = [\"user\", \"item.x\"]\nedges = [1, 2.5]\n"
      "[tables.mix]\nrows = 10\n[tables.zebra]\n[tasks.liked]\nsignals = [\"rating>=4\", "
      "\"a,b\"]\n",
      {{"features.apple.most", "5"}, {"tables.apple.init", "0.5"}});
  ASSERT_EQ(config.features.size(), 3u);
  EXPECT_EQ(config.features[0].name, "zebra");
  EXPECT_EQ(config.features[1].most, 5);
  EXPECT_EQ(config.features[2].edges, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(config.tables.size(), 3u);
  EXPECT_EQ(config.tasks[0].signals[1], "a,b");
  EXPECT_EQ(parse_config(config_text(config), "printed"), config);
}

TEST(RankingConfig, MisspeltKeysAndNamesAreSaid) {
  EXPECT_NE(message_of([] { parsed("[features.tags]\nfrm = \"item\"\n"); })
                .find("run.toml:3: unknown key 'features.tags.frm'; the nearest known one is "
                      "'features.tags.from'"),
            std::string::npos);
  EXPECT_NE(message_of([] { parsed("[tabels.item]\nrows = 3\n"); }).find("'tables.item.rows'"),
            std::string::npos);
  EXPECT_NE(message_of([] { parsed("[tasks.\"a b\"]\n"); }).find("letters, digits, - and _, and"),
            std::string::npos);
  EXPECT_NE(
      message_of([] {
        parsed("[tables.item]\nrows = \"many\"\n");
      }).find("tables.item.rows = 'many' is a string; wanted: a whole number, 0 to 2147483647"),
      std::string::npos);
}

// A table's name is a part of a file's name.
TEST(RankingConfig, NamesThatNoFileCouldHaveAreRefused) {
  const std::string longest(64, 'a'), longer = longest + "a";
  for (const char* section : {"tables", "features", "tasks"}) {
    const auto entry = [&](const std::string& name) {
      return message_of([&] { parsed("[" + std::string(section) + "." + name + "]\n"); });
    };
    EXPECT_EQ(entry(longest), "") << section;
    EXPECT_NE(entry(longer).find("a...]: a name has 1 to 64 letters"), std::string::npos)
        << entry(longer);
    EXPECT_NE(entry("\"\"").find("a name has 1 to 64"), std::string::npos) << section;
  }
  const auto table = [&](const std::string& name) {
    return message_of([&] { parsed("[features.x]\nfrom = \"item\"\ntable = \"" + name + "\"\n"); });
  };
  EXPECT_EQ(table(longest), "");
  for (const std::string& wrong : {longer, std::string("../x"), std::string("a b")}) {
    EXPECT_NE(table(wrong).find("a name has 1 to 64 letters"), std::string::npos) << table(wrong);
  }
}

TEST(RankingConfig, NumbersThatNoRunCouldUseAreRefused) {
  const auto edges = [](const std::string& list) {
    return message_of(
        [&] { parsed("[features.x]\nfrom = \"item.price\"\nedges = " + list + "\n"); });
  };
  EXPECT_EQ(edges("[-1, 0, 2.5]"), "");
  // The last two are one number in f32.
  for (const char* wrong :
       {"[nan]", "[1, inf]", "[-inf, 1]", "[1e300]", "[2, 1]", "[1, 1]", "[1.0, 1.00000000001]"}) {
    EXPECT_NE(edges(wrong).find("finite, each larger than the one before"), std::string::npos)
        << wrong << ": " << edges(wrong);
  }
  const auto table = [](const std::string& line) {
    return message_of([&] { parsed("[tables.q]\n" + line + "\n"); });
  };
  EXPECT_EQ(table("rows = 2147483647"), "");
  EXPECT_NE(table("rows = 2147483648").find("wanted: a whole number, 0 to 2147483647"),
            std::string::npos);
  EXPECT_EQ(table("init = 1000"), "");
  EXPECT_NE(table("init = 1e38").find("wanted: a number, from 0 to 1000"), std::string::npos);
  EXPECT_NE(message_of([] { parsed("[embedding]\ninit = 1e38\n"); }).find("1000 at most"),
            std::string::npos);
}

TEST(RankingConfig, DefaultsAreThoseOfTheTask) {
  const Config ranking = parsed(""), retrieval = parse_config("", "run.toml");
  EXPECT_EQ(ranking.optim.beta1, 0.95);
  EXPECT_EQ(ranking.optim.clip, 1.0);
  EXPECT_EQ(ranking.embedding.optimiser, "adagrad");
  EXPECT_EQ(ranking.model.norm_length, ranking.data.max_length);
  EXPECT_EQ(retrieval.optim.beta1, 0.9);
  EXPECT_EQ(retrieval.optim.clip, 0.0);
  EXPECT_EQ(retrieval.model.norm_length, retrieval.data.max_length + 11);
  EXPECT_EQ(parsed("[optim]\nclip = 0.5\n").optim.clip, 0.5) << "a named key stays";
  EXPECT_NE(config_help().find("tables.NAME.rows"), std::string::npos);
}

TEST(RankingConfig, WhatTheTaskCannotDoIsRefused) {
  const struct {
    const char *text, *message;
  } cases[] = {
      {"[model]\nkind = \"fuxi\"\ntime_unit = \"milliseconds\"\n", "counts time in seconds"},
      {"[train]\naccumulate = 17\n", "at most 16 parts"},
      {"[samples]\norder = \"time\"\n", "data.shuffle = false"},
      {"[samples]\nsort_batches = 16\n[data]\nshuffle = false\n", "data.shuffle = true"},
      {"[samples]\nsort_batches = 16\n[train]\ntokens = 512\n", "train.batch samples"},
      {"[samples]\nwindow = 60\n", "samples.order = \"time\""},
      {"[samples]\nwhole_batches = true\n", "is for windows (samples.window)"},
  };
  for (const auto& each : cases) {
    EXPECT_NE(message_of([&] { parsed(each.text); }).find(each.message), std::string::npos)
        << each.text;
  }
}

TEST(RankingConfig, DifferencesNameEntriesAndTheirOrder) {
  const Config a = parsed("[features.x]\nfrom = \"user\"\n[features.y]\nfrom = \"item\"\n");
  Config b = a;
  EXPECT_TRUE(config_differences(a, b, "features.").empty());
  std::swap(b.features[0], b.features[1]);
  EXPECT_EQ(config_differences(a, b, "features.").size(), 1u);
  b = a;
  b.features[1].most = 2;
  EXPECT_EQ(config_differences(a, b, "features."),
            std::vector<std::string>{"features.y.most is 2, was 16"});
  b.features.pop_back();
  EXPECT_FALSE(config_differences(a, b, "features.").empty());
}

class RankingSetupTest : public ::testing::Test {
 protected:
  RankingSetupTest() {
    std::ofstream(folder_.path() / "log.csv")
        << "user_id,item_id,timestamp,tab,click,is_hate,stay\n"
           "1,10,1,a,1,0,3\n1,11,2,b,0,1,4\n2,10,3,a,0,0,5\n";
    std::ofstream(folder_.path() / "items.csv")
        << "item_id,tags,price\n10,x|y,3\n11,x|z,4\n12,w|x,1\n";
    data::PrepareOptions options;
    options.inputs = {(folder_.path() / "log.csv").string()};
    options.out = (folder_.path() / "store").string();
    options.columns.signals = {"click", "is_hate"};
    options.columns.numbers = {"stay"};
    options.columns.features = {"tab"};
    options.item_tables = {folder_.path() / "items.csv"};
    options.item_features = {"tags:bag", "price:number"};
    data::prepare(options);
    store_ = std::make_unique<data::Store>(folder_.path() / "store");
  }
  RankingSetup setup(const std::string& text) {
    Config config = parsed(text);
    name_features(config, *store_);
    return ranking_setup(config, *store_);
  }
  std::string refusal(const std::string& text) {
    return message_of([&] { setup(text); });
  }

  TemporaryFolder folder_;
  std::unique_ptr<data::Store> store_;
};

TEST_F(RankingSetupTest, AStoreWithoutAWordGivesAllItHas) {
  const RankingSetup all = setup("");
  ASSERT_EQ(all.features.prefix.size(), 1u);
  EXPECT_EQ(all.features.prefix[0].name, "user");
  ASSERT_EQ(all.features.items.size(), 4u);
  EXPECT_EQ(all.features.items[0].name, "item");
  EXPECT_EQ(all.layout.tasks.size(), 2u);
  EXPECT_EQ(all.layout.action_bits, (std::vector<int>{0, 1}));
  const auto rows = [&](const std::string& name) {
    for (std::size_t t = 0; t < all.table_names.size(); ++t) {
      if (all.table_names[t] == name) return all.tables[t].rows;
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(rows("user"), 3);
  EXPECT_EQ(rows("item"), 3);
  EXPECT_EQ(rows("tags"), 5);  // w has a code, though 12 has no events
  EXPECT_EQ(rows("tab"), 3);
  EXPECT_EQ(rows("price"), 17);
  EXPECT_EQ(all.tables[0].optimiser, embedding::SparseOptimiser::kAdaGrad);
  EXPECT_NE(all.tables[0].seed, all.tables[1].seed);
}

TEST_F(RankingSetupTest, TablesAreSharedAndPlacesChosen) {
  const RankingSetup made = setup(
      "[features.tab_of_request]\nfrom = \"event.tab\"\ntable = \"tab\"\nplace = \"prefix\"\n"
      "[features.tab]\nfrom = \"event.tab\"\n"
      "[features.user_tab]\ncross = [\"user\", \"event.tab\"]\nplace = \"prefix\"\n"
      "[features.item]\nfrom = \"item\"\n"
      "[tables.user_tab]\nrows = 7\ninit = 0.3\n[tables.item]\nrows = 100\n");
  EXPECT_EQ(made.features.prefix.size(), 2u);
  EXPECT_EQ(made.features.items[0].name, "item") << "the id first, wherever it was named";
  EXPECT_EQ(made.features.items[1].table, made.features.prefix[0].table);
  EXPECT_EQ(made.features.table_rows[made.features.items[0].table], 100);
  EXPECT_EQ(made.layout.prefix[1].cross_rows, 7);
  const double scale = made.tables[made.features.prefix[1].table].start.scale;
  EXPECT_NEAR(scale * 0.8796 * std::sqrt(3.0), 0.3, 1e-4);
}

TEST_F(RankingSetupTest, TablesHaveTheFormatOfEmbeddingUnlessTheyNameTheirOwn) {
  const RankingSetup made = setup(
      "[embedding]\ndtype = \"f16\"\n[features.item]\nfrom = \"item\"\n"
      "[features.user]\nfrom = \"user\"\n[tables.user]\ndtype = \"f32\"\n");
  for (std::size_t t = 0; t < made.tables.size(); ++t) {
    EXPECT_EQ(made.tables[t].dtype, made.table_names[t] == "user" ? DType::kF32 : DType::kF16);
  }
  EXPECT_EQ(made.tables.size(), 2u);
}

TEST_F(RankingSetupTest, RowsStartNormalWithTheSpreadOfUniformOnesOrUniform) {
  const std::string tables =
      "[features.item]\nfrom = \"item\"\n[features.user]\nfrom = \"user\"\n"
      "[tables.item]\nrows = 100\n[tables.user]\ninit = 0.3\n";
  const RankingSetup normal = setup(tables);
  const RankingSetup uniform = setup("[embedding]\nstart = \"uniform\"\n" + tables);
  for (std::size_t t = 0; t < normal.tables.size(); ++t) {
    const double bound = normal.table_names[t] == "user" ? 0.3 : 0.1;
    EXPECT_FALSE(normal.tables[t].start.is_uniform);
    EXPECT_NEAR(normal.tables[t].start.scale, bound / std::sqrt(3) / 0.87962566, 1e-8);
    EXPECT_TRUE(uniform.tables[t].start.is_uniform);
    EXPECT_EQ(uniform.tables[t].start.scale, bound);
  }
}

TEST_F(RankingSetupTest, WhatDoesNotFitIsSaidBeforeAnythingIsMade) {
  const std::string item = "[features.item]\nfrom = \"item\"\n";
  const struct {
    std::string text, message;
  } cases[] = {
      {"[features.u]\nfrom = \"user\"\n", "no feature reads the item itself"},
      {item + "[features.t]\nfrom = \"item.tag\"\n", "[features.t]: '"},
      {item + "[features.t]\n", "it reads nothing"},
      {item + "[features.t]\nfrom = \"user\"\ncross = [\"user\", \"item\"]\n",
       "both from and cross"},
      {item + "[features.t]\ncross = [\"user\"]\n", "a cross of 1 sources"},
      {item + "[features.t]\ncross = [\"user\", \"item\"]\n", "say how large that is"},
      {item + "[features.t]\ncross = [\"user\", \"item.tags\"]\n", "has not one code a row"},
      {item + "[features.t]\nfrom = \"item.price\"\nedges = [3, 1]\n",
       "wanted: a list of numbers, finite, each larger than the one before"},
      {item + "[features.t]\nfrom = \"user\"\nedges = [1]\n",
       "edges is for numbers, and 'user' is"},
      {item + "[features.t]\nfrom = \"event.tab\"\nunit = 2\n", "unit is for numbers"},
      {item + "[features.t]\nfrom = \"item.tags\"\nbuckets = 2\n", "buckets is for numbers"},
      {item + "[features.t]\nfrom = \"item.price\"\nmost = 2\n", "most is for bags"},
      {item + "[features.t]\ncross = [\"user\", \"item\"]\npooling = \"sum\"\n",
       "pooling is for bags, and this is a cross"},
      {item + "[features.t]\nfrom = \"item.price\"\nedges = [1]\nbuckets = 2\n",
       "give one of the two"},
      {item + "[features.t]\nfrom = \"item.tags\"\nnumber = \"normalised\"\n",
       "number is for numbers"},
      {item + "[features.t]\nfrom = \"item.price\"\nsd = 2\n", "mean and sd are for number ="},
      {item + "[features.t]\nfrom = \"item.price\"\nnumber = \"normalised\"\nmean = 2\n",
       "mean = 2 without sd; give both"},
      {item + "[features.t]\nfrom = \"item.price\"\nnumber = \"normalised\"\nmean = nan\nsd = 1\n",
       "mean = nan is not allowed; wanted: a number, finite"},
      {item + "[features.t]\nfrom = \"item.price\"\nnumber = \"normalised\"\nedges = [1]\n",
       "it is normalised; leave them out"},
      {item + "[features.t]\nfrom = \"item.price\"\nrate = \"click\"\n",
       "a rate of 'item.price', which has not one code a row"},
      {item + "[features.t]\nfrom = \"item.tags\"\nrate = \"click\"\n",
       "a rate of 'item.tags', which has not one code a row"},
      {item + "[features.t]\nfrom = \"item\"\nrate = \"clik\"\n",
       "[features.t]: there is no task or signal 'clik' to count; the nearest is 'click', and "
       "there "
       "are: click, is_hate"},
      {item + "[features.t]\nfrom = \"item\"\nrate = \"stay\"\n[tasks.stay]\nnumber = \"stay\"\n",
       "there is no task or signal 'stay' to count"},
      {item + "[features.t]\nfrom = \"itm\"\nrate = \"click\"\n", "the nearest is 'item'"},
      {item + "[features.t]\nfrom = \"item\"\nrate = \"click\"\nprior = 0\n",
       "prior = 0 is not allowed"},
      {item + "[features.t]\nfrom = \"item\"\nrate = \"click\"\nnumber = \"normalised\"\n",
       "number is for numbers"},
      {item + "[features.t]\nfrom = \"user\"\nprior = 3\n", "prior and delay are for a rate"},
      {"[features.t]\nfrom = \"item\"\nrate = \"click\"\n", "no feature reads the item itself"},
      {item + "[features.t]\nfrom = \"user\"\nrate = \"click\"\ntable = \"item\"\n",
       "[features.t] is a rate and [features.item] has codes, and both have the table 'item'"},
      {"[features.t]\nfrom = \"user\"\nrate = \"click\"\n" + item + "table = \"t\"\n",
       "[features.t] is a rate and [features.item] has codes, and both have the table 't'"},
      {item + "[features.t]\nfrom = \"item.price\"\nnumber = \"normalised\"\ntable = \"item\"\n",
       "[features.t] is a normalised number and [features.item] has codes"},
      {item + "[features.t]\nfrom = \"item\"\nrate = \"click\"\n" +
           "[tasks.click]\nsignals = [\"click\", \"is_hate\"]\n",
       "[features.t]: rate = \"click\" is a signal of the store and a task of other signals; give "
       "[tasks.click] another name"},
      {item + "[features.t]\nfrom = \"clock.minute\"\n", "a clock is clock.hour or clock.day"},
      {item + "[features.t]\ncross = [\"user\", \"item.price\"]\n", "has not one code a row"},
      {item + "[features.t]\nfrom = \"event.tub\"\n", "the nearest is 'event.tab'"},
      {item + "[tables.item]\nrows = 2\n", "it has ids up to 2, and [tables.item] has rows = 2"},
      {item + "[tables.itm]\nrows = 9\n", "did you mean [tables.item]?"},
      {item + "[tables.item]\nwidth = 9\n", "and model.embedding is 16"},
      {item + "[features.other]\nfrom = \"user\"\ntable = \"itme\"\n", "the nearest is 'item'"},
      {item + "least = 3\n", "is for prefix features"},
      {"[tasks.clik]\n", "[tasks.clik]: "},
      {"[tasks.t]\nsignals = [\"click\"]\nnumber = \"stay\"\n", "both signals and number"},
      {"[tasks.t]\nnumber = \"play\"\n", "has no numbers 'play'"},
      {"[tasks.click]\nwhere = [\"clik\"]\n", "[tasks.click]: where: 'clik' is no signal"},
      {"[tasks.click]\nweight_by = \"sty\"\n", "[tasks.click]: '"},
      {"[tasks.click]\nbase = [\"clicks\"]\n",
       "[tasks.click]: base names 'clicks', which is no feature with a rate; add one, as in"},
      {item + "[features.clicks]\nfrom = \"item\"\nrate = \"click\"\n[tasks.click]\nbase = "
              "[\"click\"]\n",
       "which is no feature with a rate; did you mean 'clicks'?"},
      {item + "[tasks.t]\nnumber = \"stay\"\nbase = [\"item\"]\n",
       "base is for logits, and the task predicts a number"},
      {"[samples]\nactions = [\"clicks\"]\n", "has no signal 'clicks'"},
  };
  for (const auto& each : cases) {
    EXPECT_NE(refusal(each.text).find(each.message), std::string::npos) << each.text << "\n"
                                                                        << refusal(each.text);
  }
}

// Names of a store's columns need not be names of entries.
TEST(RankingNames, LongNamesOfAStoreBecomeNamesOfEntries) {
  TemporaryFolder folder;
  const std::string column(199, 'x');
  std::ofstream(folder.path() / "log.csv") << "user_id,item_id,timestamp," << column << "1,"
                                           << column << "2,click\n1,10,1,a,b,1\n1,11,2,b,a,0\n";
  data::PrepareOptions options;
  options.inputs = {(folder.path() / "log.csv").string()};
  options.out = (folder.path() / "store").string();
  options.columns.signals = {"click"};
  options.columns.features = {column + "1", column + "2"};
  data::prepare(options);
  Config config = parsed("");
  name_features(config, data::Store(folder.path() / "store"));
  EXPECT_EQ(config.features.size(), 4u);
  EXPECT_EQ(parse_config(config_text(config), "printed"), config);
}

TEST_F(RankingSetupTest, RetrievalTakesFeaturesOfItemsWhereAskedTo) {
  Config named = parse_config("", "run.toml"), store = named, own = named;
  store.model.features = own.model.features = "store";
  own.features.push_back({.name = "price", .from = "item.price"});
  for (Config* config : {&named, &store, &own}) name_features(*config, *store_);
  EXPECT_TRUE(named.features.empty());
  ASSERT_FALSE(store.features.empty());
  std::size_t of_items = 0;
  for (const data::Feature& feature : store_->manifest().features) {
    if (feature.owner == data::FeatureOwner::kItem) ++of_items;
  }
  EXPECT_EQ(store.features.size(), of_items);
  for (const FeatureConfig& feature : store.features) {
    EXPECT_TRUE(feature.from.starts_with("item.")) << feature.from;
  }
  EXPECT_EQ(own.features.size(), 1u);
  EXPECT_EQ(parse_config(config_text(store), "printed"), store);
}

// An example of each: ids, categories of the event and the request, bags, numbers by edges and by
// powers of two, clocks, crosses, shared tables.
TEST_F(RankingSetupTest, EveryKindOfFeatureHasItsPlaceAndRows) {
  const RankingSetup made = setup(
      "[features.user]\nfrom = \"user\"\nleast = 2\n"
      "[features.shown]\nfrom = \"event.tab\"\nplace = \"prefix\"\ntable = \"tab\"\n"
      "[features.hour]\nfrom = \"clock.hour\"\n"
      "[features.day]\nfrom = \"clock.day\"\nplace = \"item\"\n"
      "[features.mix]\ncross = [\"user\", \"event.tab\", \"clock.hour\"]\nplace = \"prefix\"\n"
      "[tables.mix]\nrows = 40\n"
      "[features.tab]\nfrom = \"event.tab\"\n"
      "[features.tags]\nfrom = \"item.tags\"\npooling = \"sum\"\nmost = 3\n"
      "[features.price]\nfrom = \"item.price\"\nunit = 2\nbuckets = 5\n"
      "[features.dear]\nfrom = \"item.price\"\nedges = [1.5, 3.5]\n"
      "[features.cost]\nfrom = \"item.price\"\nnumber = \"normalised\"\n"
      "[features.item]\nfrom = \"item\"\n");
  const auto names = [](const std::vector<model::Feature>& features) {
    std::string text;
    for (const model::Feature& feature : features) text += feature.name + " ";
    return text;
  };
  EXPECT_EQ(names(made.features.prefix), "user shown hour mix ");
  EXPECT_EQ(names(made.features.items), "item day tab tags price dear cost ");
  const auto rows = [&](const model::Feature& feature) {
    return made.features.table_rows[feature.table];
  };
  const std::vector<std::int64_t> prefix_rows = {3, 3, 25, 40}, item_rows = {3, 8, 3, 5, 6, 4, 3};
  for (std::size_t f = 0; f < prefix_rows.size(); ++f) {
    EXPECT_EQ(rows(made.features.prefix[f]), prefix_rows[f]) << f;
  }
  for (std::size_t f = 0; f < item_rows.size(); ++f) {
    EXPECT_EQ(rows(made.features.items[f]), item_rows[f]) << f;
  }
  EXPECT_EQ(made.features.items[3].pooling, model::Pooling::kSum);
  EXPECT_EQ(made.features.items[6].pooling, model::Pooling::kSum);
  EXPECT_EQ(made.features.items[6].most_ids, 2);
  EXPECT_EQ(made.features.prefix[0].least_events, 2);
  EXPECT_EQ(made.features.prefix[1].table, made.features.items[2].table);
}

// Of a user, too, and without rows for a cross. A task of several signals is counted as it is
// learnt.
TEST_F(RankingSetupTest, RatesArePartsOfEveryEventAndOfSignalsOrTasks) {
  const RankingSetup made = setup(
      "[features.likes]\nfrom = \"item\"\nrate = \"click\"\n"
      "[features.item]\nfrom = \"item\"\n"
      "[features.own]\nfrom = \"user\"\nrate = \"any\"\nprior = 5\ndelay = 60\n"
      "table = \"likes\"\n"  // of rates alone
      "[features.here]\ncross = [\"user\", \"event.tab\"]\nrate = \"is_hate\"\n"
      "[features.first]\nfrom = \"event.tab\"\nrate = \"click\"\nplace = \"prefix\"\n"
      "[tasks.any]\nsignals = [\"click\", \"is_hate\"]\n");
  ASSERT_EQ(made.layout.items.size(), 4u);
  ASSERT_EQ(made.layout.prefix.size(), 1u);
  EXPECT_EQ(made.layout.items[0].name, "item");
  for (std::size_t f = 0; f < 4; ++f) {
    EXPECT_EQ(made.layout.items[f].rates != nullptr, f > 0);
    if (f == 0) continue;
    EXPECT_EQ(made.features.table_rows[made.features.items[f].table], 3);
    EXPECT_EQ(made.features.items[f].pooling, model::Pooling::kSum);
  }
  EXPECT_NE(made.layout.prefix[0].rates, nullptr);
}

TEST_F(RankingSetupTest, LogitsMayStartFromRates) {
  const std::string text =
      "[features.item]\nfrom = \"item\"\n"
      "[features.clicks]\nfrom = \"item\"\nrate = \"click\"\n"
      "[features.own]\nfrom = \"user\"\nrate = \"click\"\nplace = \"prefix\"\n"
      "[tasks.is_hate]\n";
  const RankingSetup plain = setup(text + "[tasks.click]\n");
  EXPECT_FALSE(ranking_options(parsed(text), plain, 1).bases);
  const std::string based = text + "[tasks.click]\nbase = [\"own\", \"clicks\"]\n";
  const RankingSetup made = setup(based);
  EXPECT_TRUE(ranking_options(parsed(based), made, 1).bases);
  EXPECT_TRUE(made.layout.tasks[0].base.empty());
  ASSERT_EQ(made.layout.tasks[1].base.size(), 2u);
  EXPECT_EQ(made.layout.tasks[1].base[0], made.layout.prefix[0].rates);
  EXPECT_EQ(made.layout.tasks[1].base[1], made.layout.items[1].rates);
}

// A run remembers what its numbers were normalised with, for stores to come.
TEST_F(RankingSetupTest, MeansAndDeviationsAreTheStoresUnlessNamed) {
  Config config = parsed(
      "[features.item]\nfrom = \"item\"\n"
      "[features.cost]\nfrom = \"item.price\"\nnumber = \"normalised\"\n");
  name_features(config, *store_);
  EXPECT_NEAR(config.features[1].mean, 3.5, 1e-9);  // of 10 and 11; 12 has no events
  EXPECT_NEAR(config.features[1].sd, 0.5, 1e-9);
  EXPECT_EQ(parse_config(config_text(config), "printed"), config);
  config.features[1].mean = 7;
  name_features(config, *store_);
  EXPECT_EQ(config.features[1].mean, 7);
  EXPECT_EQ(ranking_setup(config, *store_).layout.items[1].scale->mean, 7);
}

TEST_F(RankingSetupTest, CutTablesHoldTheCodesOfTheirFeatures) {
  const RankingSetup made = setup(
      "[embedding]\ncut = 10\n[features.item]\nfrom = \"item\"\n[features.user]\nfrom = \"user\"\n"
      "[features.mix]\ncross = [\"user\", \"item\"]\nplace = \"prefix\"\ntable = \"user\"\n"
      "[tables.item]\nrows = 100\n[tables.user]\nrows = 5000\n");
  EXPECT_EQ(made.features.table_rows, (std::vector<std::int64_t>{100, 500}));
  EXPECT_EQ(made.named_rows, (std::vector<std::int64_t>{100, 5000}));
  EXPECT_EQ(made.layout.prefix[1].cross_rows, 500);
}

TEST_F(RankingSetupTest, AShapeWithoutAStoreNamesItsRows) {
  const std::string item = "[features.item]\nfrom = \"item\"\n";
  EXPECT_NE(message_of([&] { ranking_shape(parsed(item)); }).find("rows must be named"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              ranking_shape(parsed("[features.u]\nfrom = \"user\"\n[tables.u]\nrows = 9\n"));
            }).find("no feature reads the item itself"),
            std::string::npos);
}

TEST_F(RankingSetupTest, FuxiHasItsWidthAndMapsAndTakesOneTargetOnAGpu) {
  const auto options = [&](const std::string& text, std::int64_t most_targets) {
    const std::string fuxi = "[data]\nmax_length = 20\n[model]\nkind = \"fuxi\"\n" + text;
    return ranking_train_options(
               parsed(fuxi), setup(fuxi),
               {.samples = 1, .tokens = 99, .targets = most_targets, .most_targets = most_targets})
        .model;
  };
  const model::RankingOptions made = options("width = 10\nffn = 2.5\nbias = \"position\"\n", 8);
  EXPECT_EQ(made.kind, model::ModelKind::kFuxi);
  EXPECT_EQ(made.feed_forward, 25);
  EXPECT_EQ(made.maps, model::BiasKind::kPosition);
  // Whatever the number of targets: what is trained does not depend on it.
  EXPECT_EQ(model::layer_options(made).position_length(), made.prefix + 20 + 1);
  const std::string cuda = "[train]\ndevice = \"cuda\"\n";
  EXPECT_NE(message_of([&] { options(cuda, 8); }).find("no GPU kernels yet for samples of several"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { options(cuda, 1); }), "");
  EXPECT_EQ(message_of([&] { options("bias = \"time\"\n" + cuda, 8); }), "");
  data::PrepareOptions timeless;
  timeless.inputs = {(folder_.path() / "log.csv").string()};
  timeless.out = (folder_.path() / "timeless").string();
  timeless.columns.time = "none";
  timeless.columns.signals = {"click"};
  data::prepare(timeless);
  store_ = std::make_unique<data::Store>(folder_.path() / "timeless");
  EXPECT_NE(refusal("[model]\nkind = \"fuxi\"\n").find("has no times (order only)"),
            std::string::npos);
  EXPECT_EQ(refusal("[model]\nkind = \"fuxi\"\nbias = \"position\"\n"), "");
  EXPECT_EQ(refusal(""), "");
}

TEST_F(RankingSetupTest, TasksHaveMasksNumbersAndWeights) {
  const RankingSetup made = setup(
      "[tasks.any]\nsignals = [\"click\", \"is_hate\"]\nweight = 2\n[tasks.is_hate]\n"
      "[tasks.long]\nnumber = \"stay\"\nwhere = [\"!click\", \"stay<5\"]\nweight_by = \"stay\"\n");
  EXPECT_EQ(made.layout.tasks[0].signals, 3u);
  EXPECT_EQ(made.layout.tasks[1].signals, 2u);
  EXPECT_TRUE(made.layout.tasks[2].is_number());
  EXPECT_EQ(made.regression, (std::vector<std::uint8_t>{0, 0, 1}));
  EXPECT_EQ(made.task_weights, (std::vector<double>{2, 1, 1}));
  // Events: click, 3; is_hate, 4; neither, 5.
  EXPECT_EQ(made.layout.tasks[2].weight.of(0, 1), 0);
  EXPECT_EQ(made.layout.tasks[2].weight.of(1, 2), 4);
  EXPECT_EQ(made.layout.tasks[2].weight.of(2, 0), 0);
  EXPECT_EQ(made.layout.tasks[1].weight.of(0, 1), 1);
}

}  // namespace
}  // namespace turbogr::run
