#include "turbogr/run/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/support/messages.h"
#include "tests/support/paths.h"
#include "turbogr/run/config_keys.h"

namespace turbogr {
namespace {

using test::message_of;

std::string parse_message(std::string_view text, const std::vector<run::Override>& overrides = {}) {
  return message_of([&] { run::parse_config(text, "run.toml", overrides); });
}

TEST(Config, AnEmptyFileGivesTheDefaultsWithImpliedValuesFilledIn) {
  const run::Config config = run::parse_config("", "run.toml");
  EXPECT_EQ(config.model.kind, "hstu");
  EXPECT_EQ(config.model.dq, 32);
  EXPECT_EQ(config.model.dv, 32);
  EXPECT_EQ(config.model.norm_length, 211);
  EXPECT_EQ(config.train.batch, 128);
}

TEST(Config, ReadsEveryTypeOfValue) {
  const run::Config config = run::parse_config(
      "[model]\nkind = \"fuxi\"\ndropout = 0\nalpha = 0.5\n[run]\ntrace = true\nseed = 1_000\n"
      "[eval]\nat = [1, 5]\n",
      "run.toml");
  EXPECT_EQ(config.model.kind, "fuxi");
  EXPECT_EQ(config.model.dropout, 0.0);  // a whole number passes for a real one
  EXPECT_EQ(config.model.alpha, 0.5);
  EXPECT_TRUE(config.run.trace);
  EXPECT_EQ(config.run.seed, 1000);
  EXPECT_EQ(config.eval.at, (std::vector<std::int64_t>{1, 5}));
}

TEST(Config, DottedKeysAndInlineTablesAreTheSameAsSections) {
  const run::Config config =
      run::parse_config("train.steps = 7\nmodel = {layers = 3}\n", "run.toml");
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.model.layers, 3);
}

TEST(Config, UnknownKeyNamesFileLineAndNearestKey) {
  EXPECT_EQ(parse_message("[model]\nkind = \"hstu\"\nlayer = 3\n"),
            "run.toml:3: unknown key 'model.layer'; the nearest known one is 'model.layers' "
            "(`turbogr config --keys` lists all)");
  EXPECT_NE(parse_message("[modle]\nlayers = 3\n").find("'model.layers'"), std::string::npos);
  EXPECT_NE(parse_message("layers = 3\n").find("'model.layers'"), std::string::npos);
  EXPECT_NE(parse_message("[optim.deep]\nlr = 3.0\n").find("unknown key 'optim.deep.lr'"),
            std::string::npos);
  EXPECT_NE(parse_message("[optimizer]\n").find("unknown key 'optimizer'"), std::string::npos);
}

TEST(Config, ARightNameInTheWrongSectionFindsItsHome) {
  EXPECT_EQ(run::nearest_config_key("train.heads").name, "model.heads");
  EXPECT_EQ(run::nearest_config_key("embedding.optimizer").name, "embedding.optimiser");
  EXPECT_EQ(run::nearest_config_key("data.max_len").name, "data.max_length");
}

TEST(Config, IllTypedValuesNameWhatWasFoundAndWhatIsWanted) {
  EXPECT_EQ(parse_message("[model]\n\nlayers = \"two\"\n"),
            "run.toml:3: model.layers = 'two' is a string; wanted: a whole number, 1 to 1024 "
            "(number of layers)");
  EXPECT_NE(parse_message("[model]\nlayers = 2.5\n").find("is a fractional number"),
            std::string::npos);
  EXPECT_NE(parse_message("[model]\nkind = true\n").find("is a boolean; wanted: a string"),
            std::string::npos);
  EXPECT_NE(parse_message("[run]\ntrace = 1\n").find("wanted: true or false"), std::string::npos);
  EXPECT_NE(parse_message("[eval]\nat = [1, 2.5]\n").find("is a list; wanted: a list of whole"),
            std::string::npos);
  EXPECT_NE(parse_message("[model.layers]\nx = 1\n").find("is a table"), std::string::npos);
  EXPECT_NE(parse_message("[run]\ndir = 2020-01-01\n").find("is a date or time"),
            std::string::npos);
  EXPECT_NE(parse_message("model = 3\n").find("wanted: a section, [model]"), std::string::npos);
}

TEST(Config, EveryKindOfRuleRefusesWhatIsOutOfRange) {
  EXPECT_NE(parse_message("[model]\nlayers = 0\n")
                .find("run.toml:2: model.layers = 0 is not "
                      "allowed; wanted: a whole number, 1 to"),
            std::string::npos);
  EXPECT_NE(parse_message("[log]\nevery = 0\n").find("at least 1"), std::string::npos);
  EXPECT_NE(parse_message("[optim]\nlr = 0.0\n").find("more than 0"), std::string::npos);
  EXPECT_NE(parse_message("[optim]\nlr = inf\n").find("more than 0"), std::string::npos);
  EXPECT_NE(parse_message("[optim]\nclip = -1.0\n").find("0 or more"), std::string::npos);
  EXPECT_NE(parse_message("[optim]\nclip = nan\n").find("0 or more"), std::string::npos);
  EXPECT_NE(parse_message("[model]\ndropout = 1.0\n").find("not including, 1"), std::string::npos);
  EXPECT_NE(parse_message("[model]\nkind = \"gru\"\n").find("hstu or fuxi"), std::string::npos);
  EXPECT_NE(parse_message("[data]\nholdout = \"time:\"\n").find("time:T"), std::string::npos);
  EXPECT_NE(parse_message("[data]\nholdout = \"time:12x\"\n").find("time:T"), std::string::npos);
  EXPECT_EQ(parse_message("[data]\nholdout = \"time:1650000000\"\n"), "");
  EXPECT_EQ(parse_message("[data]\nholdout = \"time:2022-04-30\"\n"), "");
  EXPECT_EQ(parse_message("[data]\nholdout = \"time:2022-04-30T12:00:00\"\n"), "");
  EXPECT_NE(parse_message("[data]\nholdout = \"time:2022-04-31\"\n").find("time:T..E, T a date"),
            std::string::npos);
  EXPECT_NE(parse_message("[eval]\nmetric = \"hr@\"\n").find("ndcg@K"), std::string::npos);
  EXPECT_NE(parse_message("[eval]\nmetric = \"auc@10\"\n").find("ndcg@K"), std::string::npos);
  EXPECT_EQ(parse_message("[eval]\nmetric = \"mrr\"\n"), "");
  EXPECT_NE(parse_message("[eval]\nat = []\n").find("each at least 1"), std::string::npos);
}

TEST(Config, KeysThatContradictEachOtherAreRefusedWithTheWayOut) {
  EXPECT_NE(parse_message("[model]\nwidth = 50\nheads = 3\n").find("set model.dq"),
            std::string::npos);
  EXPECT_EQ(parse_message("[model]\nwidth = 50\nheads = 3\ndq = 16\ndv = 16\n"), "");
  EXPECT_NE(parse_message("[train]\nepochs = 0\n").find("never end"), std::string::npos);
  EXPECT_NE(parse_message("[model]\nprefix = 2\n").find("would see the item it has to predict"),
            std::string::npos);
  EXPECT_EQ(parse_message("[model]\nprefix = 190\ntargets = 10\n"), "");
  EXPECT_NE(parse_message("[model]\nprefix = 191\ntargets = 10\n").find("leave no room"),
            std::string::npos);
  EXPECT_EQ(parse_message("[model]\ntargets = 9223372036854775807\n"), "");
  EXPECT_NE(parse_message("[train]\npatience = 2\n").find("counts evaluations"), std::string::npos);
  EXPECT_EQ(parse_message("[train]\npatience = 2\n[eval]\nevery_steps = 9\n"), "");
  EXPECT_NE(parse_message("[train]\npatience = 2\n[eval]\nevery = 1\n[data]\nholdout = \"test\"\n")
                .find("goes by the validation split"),
            std::string::npos);
  EXPECT_NE(parse_message("[train]\npatience = 2\n[eval]\nevery = 1\n[data]\nholdout = \"test\"\n")
                .find("\"time:V,T\" (validation from V, test from T on) or \"last:V%,P%\""),
            std::string::npos);
  EXPECT_NE(parse_message("[train]\nbatch = 8\ntokens = 999\n").find("exactly one"),
            std::string::npos);
  EXPECT_NE(parse_message("[train]\ntokens = 100\n").find("cannot hold one sequence"),
            std::string::npos);
  EXPECT_NE(parse_message("[data]\nholdout = \"test\"\n[checkpoint]\nkeep_best = 1\n")
                .find("validation split"),
            std::string::npos);
  EXPECT_NE(parse_message("[model]\nkind = \"fuxi\"\nconcat = true\n").find("option of HSTU"),
            std::string::npos);
  EXPECT_NE(parse_message("[model]\nkind = \"fuxi\"\nnorm_heads = true\n").find("option of HSTU"),
            std::string::npos);
  EXPECT_NE(parse_message("[train]\nproducts = \"fp8\"\ndtype = \"bf16\"\n[model]\nnorm_heads = "
                          "true\n")
                .find("one norm has made"),
            std::string::npos);
  EXPECT_NE(parse_message("[train]\nproducts = \"fp8\"\n").find("set train.dtype = \"bf16\""),
            std::string::npos);
  EXPECT_EQ(parse_message("[train]\nproducts = \"fp8\"\ndtype = \"bf16\"\n"), "");
  EXPECT_NE(parse_message("[train]\nproducts = \"fp8\"\ndtype = \"bf16\"\nrecompute = true\n")
                .find("keeps its operands"),
            std::string::npos);
  EXPECT_NE(parse_message("[run]\nresume = true\nstart_from = \"x\"\n").find("only one"),
            std::string::npos);
}

TEST(Config, NegativesThatMakeNoSenseTogetherAreRefusedWithTheReason) {
  const auto refused = [](const std::string& lines, const std::string& reason) {
    EXPECT_EQ(parse_message("[negatives]\n" + lines).find(reason), 0u)
        << parse_message("[negatives]\n" + lines);
  };
  refused("sampler = \"mixed\"", "negatives.sampler is \"mixed\" and negatives.mix does not say");
  refused("mix = [1, 1, 1]", "negatives.mix is the recipe of sampler = \"mixed\" and another");
  refused("sampler = \"mixed\"\nmix = [0, 3, 0]",
          "negatives.mix = [0, 3, 0] has a single part; name that sampler");
  refused("sampler = \"mixed\"\nmix = [0, 0, 0]", "the mix of negatives is all 0");
  refused("sampler = \"mixed\"\ncount = 4\nmix = [100, 1, 0]",
          "the mix [100, 1, 0] leaves popularity without a draw among 4 negatives");
  refused("alpha = 0.5", "negatives.alpha = 0.5 shapes draws by popularity, of which there are");
  refused("sampler = \"in_batch\"\nalpha = 0.5", "negatives.alpha = 0.5 shapes draws");
  refused("correction = false", "negatives.correction = false switches off what uniform negatives");
  refused("set = \"batch\"\nsharing = \"logits\"\nsharing_factor = 4",
          "negatives.sharing lends one token's negatives to others, and with set = \"batch\"");
  refused("sharing = \"logits\"", "negatives.sharing with sharing_factor = 1 shares with nobody");
  refused("sharing_factor = 4", "negatives.sharing_factor = 4 without sharing");
  refused("half_table = true", "negatives.half_table keeps the f16 rows that dtype = \"full\"");
  EXPECT_NE(parse_message("[negatives]\nmix = [1, 2]").find("three whole numbers"),
            std::string::npos);
  for (const char* sense : {"sampler = \"popularity\"\nalpha = 0.5\ncorrection = false",
                            "sampler = \"mixed\"\nmix = [2, 1, 1]\nalpha = 1.0\nset = \"batch\"",
                            "sampler = \"in_batch\"\nsharing = \"embeddings\"\nsharing_factor = 4",
                            "dtype = \"f16\"\nhalf_table = true\nset = \"batch\""}) {
    EXPECT_EQ(parse_message(std::string("[negatives]\n") + sense), "") << sense;
  }
}

TEST(Config, ATableInHostMemoryIsForAGpu) {
  EXPECT_EQ(parse_message("[embedding]\nmemory = \"host\"\n[train]\ndevice = \"cpu\"\n"),
            "embedding.memory = \"host\" keeps a GPU's item table in the host's memory, where "
            "train.device = \"cpu\" has it anyway; leave it out, or train on cuda");
  EXPECT_EQ(parse_message("[embedding]\nmemory = \"host\"\n[train]\ndevice = \"cuda\"\n"), "");
}

TEST(Config, BrokenTomlNamesTheLine) {
  EXPECT_EQ(parse_message("[model]\nlayers = \n").rfind("run.toml:2: not TOML: ", 0), 0u);
  EXPECT_EQ(parse_message("[log]\nevery = 1\nevery = 2\n").rfind("run.toml:3: not TOML: ", 0), 0u);
}

TEST(Config, AMissingFileIsNamed) {
  EXPECT_NE(message_of([] { run::load_config("/nowhere/x.toml"); }).find("'/nowhere/x.toml'"),
            std::string::npos);
  EXPECT_NE(message_of([] { run::load_config("/tmp"); }).find("'/tmp'"), std::string::npos);
}

TEST(ConfigOverrides, BeatTheFileAndAreCheckedTheSame) {
  const run::Config config = run::parse_config("[train]\nsteps = 5\n", "run.toml",
                                               {{"train.steps", "100"},
                                                {"run.dir", "a b/true"},
                                                {"run.trace", "true"},
                                                {"optim.lr", "1"},
                                                {"eval.at", "[3]"},
                                                {"data.store", "\"quo\\\"ted\""}});
  EXPECT_EQ(config.train.steps, 100);
  EXPECT_EQ(config.run.dir, "a b/true");
  EXPECT_TRUE(config.run.trace);
  EXPECT_EQ(config.optim.lr, 1.0);
  EXPECT_EQ(config.eval.at, std::vector<std::int64_t>{3});
  EXPECT_EQ(config.data.store, "quo\"ted");
  EXPECT_EQ(parse_message("", {{"train.steps", "many"}}),
            "command line, --train.steps=many: 'many' cannot be read; wanted: a whole number, at "
            "least 0 (total steps, those before a resume included; 0: no limit)");
  EXPECT_NE(parse_message("", {{"train.step", "1"}}).find("'train.steps'"), std::string::npos);
  EXPECT_NE(parse_message("", {{"train.steps", "1.5"}}).find("fractional"), std::string::npos);
  EXPECT_NE(parse_message("", {{"train.steps", "1\nx = 2"}}).find("more than one"),
            std::string::npos);
  EXPECT_NE(parse_message("", {{"model.kind", "gru"}}).find("hstu or fuxi"), std::string::npos);
}

TEST(ConfigOverrides, AreReadFromBothSpellingsWhereverTheFileStands) {
  const run::ConfigArguments split = run::split_config_arguments(
      {"--train.steps", "100", "x.toml", "--run.dir=a=b", "--optim.lr", "-1"});
  EXPECT_EQ(split.path, "x.toml");
  ASSERT_EQ(split.overrides.size(), 3u);
  EXPECT_EQ(split.overrides[0].key + " " + split.overrides[0].value, "train.steps 100");
  EXPECT_EQ(split.overrides[1].key + " " + split.overrides[1].value, "run.dir a=b");
  EXPECT_EQ(split.overrides[2].key + " " + split.overrides[2].value, "optim.lr -1");
  const auto message = [](const std::vector<std::string>& arguments) {
    return message_of([&] { run::split_config_arguments(arguments); });
  };
  EXPECT_NE(message({"a", "--run.trace"}).find("--run.trace=VALUE"), std::string::npos);
  EXPECT_NE(message({"a", "--run.trace", "--run.dir=x"}).find("needs a value"), std::string::npos);
  EXPECT_NE(message({"a", "b"}).find("two config files"), std::string::npos);
  EXPECT_TRUE(run::split_config_arguments({"--a.b=c"}).path.empty());
}

TEST(ConfigText, RoundTripsDefaultsAndAwkwardValues) {
  run::Config config = run::parse_config("", "run.toml");
  EXPECT_EQ(run::parse_config(run::config_text(config), "printed"), config);
  config.run.dir = "quote\" slash\\ tab\t bell\a utf \xc3\xa9";
  config.optim.lr = 0.1 + 0.2;
  config.optim.eps = 1e-300;
  config.train.peak_tflops = 1e17;
  config.eval.at = {7};
  EXPECT_EQ(run::parse_config(run::config_text(config), "printed"), config);
}

TEST(ConfigText, HoldsEveryKeyOnce) {
  std::set<std::string_view> names;
  for (const run::ConfigKey& key : run::config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_NE(run::config_help().find(key.name), std::string::npos);
    // The defaults pass their own checks.
    EXPECT_TRUE(key.rule.allows(key.get(run::Config{}))) << key.name;
  }
}

TEST(ConfigKeys, SettingOneKeyChangesThatKeyOnly) {
  for (const run::ConfigKey& key : run::config_keys()) {
    run::Config config;
    run::ConfigValue value = key.get(config);
    std::visit(
        [](auto& field) {
          using Field = std::decay_t<decltype(field)>;
          if constexpr (std::is_same_v<Field, bool>) {
            field = !field;
          } else if constexpr (std::is_arithmetic_v<Field>) {
            field += 1;
          } else if constexpr (std::is_same_v<Field, std::string>) {
            field += "x";
          } else {
            field.emplace_back();
          }
        },
        value);
    key.set(config, value);
    EXPECT_EQ(run::config_differences(run::Config{}, config, "").size(), 1u) << key.name;
    EXPECT_FALSE(config == run::Config{}) << key.name;
  }
}

TEST(ConfigDifferences, NameKeyNewAndOldValueUnderThePrefix) {
  run::Config was;
  run::Config is;
  is.model.layers = 4;
  is.train.steps = 9;
  EXPECT_EQ(run::config_differences(was, is, "model."),
            std::vector<std::string>{"model.layers is 4, was 2"});
  EXPECT_EQ(run::config_differences(was, is, "").size(), 2u);
}

TEST(NamedConfigs, EveryOneParsesAndMatchesItsName) {
  std::set<std::string> names;
  const std::string folder = test::source_dir() + "/configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    names.insert(name);
    const run::Config config = run::load_config(entry.path().string());
    EXPECT_EQ(config.model.kind, name.find("fuxi") != std::string::npos ? "fuxi" : "hstu") << name;
    EXPECT_EQ(config.run.dir, "runs/" + name);
    if (name.ends_with("27k-hstu-large") || name.ends_with("-long") ||
        name.ends_with("27k-fuxi-large")) {
      EXPECT_EQ(config.model.layers, 16);
      EXPECT_EQ(config.model.width, 1024);
      EXPECT_EQ(config.model.heads * config.model.dq, 1024);
      EXPECT_EQ(config.data.max_length, name.ends_with("-long") ? 4096 : 2048);
    }
  }
  std::set<std::string> wanted = {"demo",
                                  "own-data",
                                  "ml1m-hstu",
                                  "ml1m-hstu-large",
                                  "ml1m-fuxi",
                                  "ml-1m-ranking",
                                  "ml-1m-ranking-tuned",
                                  "ml-latest-small-ranking",
                                  "ml-latest-small-ranking-tuned",
                                  "kuairand-pure-ranking",
                                  "kuairand-pure-ranking-tuned",
                                  "dlrmv4",
                                  "dlrmv3",
                                  "yambda-synth-ranking"};
  for (const std::string kind : {"hstu", "fuxi"}) {
    for (const std::string size : {"tiny", "small", "medium", "large", "long"}) {
      wanted.insert("kuairand27k-" + kind + "-" + size);
    }
  }
  EXPECT_EQ(names, wanted);
}

}  // namespace
}  // namespace turbogr
