#include "turbogr/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/checkpoint_manifest.h"
#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TemporaryFolder;

void flip_byte(const std::string& file, std::int64_t from_end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-from_end, std::ios::end);
  const char old = static_cast<char>(stream.get());
  stream.seekp(-from_end, std::ios::end);
  stream.put(static_cast<char>(old ^ 0x10));
}

// Who opens it to read waits for a writer.
void make_pipe(const std::string& file) {
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class CheckpointTest : public testing::Test {
 protected:
  checkpoint::CheckpointContents contents(std::int64_t step,
                                          std::optional<double> score = std::nullopt) {
    return {.step = step,
            .shards = {{"model", {named("w", w_), named("b", b_)}}, {"optim", {named("w.m", m_)}}},
            .state = {{"epoch", 3}, {"loader", {{"position", 17}}}},
            .config = "[model]\nlayers = 2\n",
            .command = "turbogr train x.toml",
            .score = score};
  }
  void save(std::int64_t step, std::optional<double> score = std::nullopt,
            checkpoint::CheckpointWriterOptions options = {}) {
    w_.view<float, 2>()(0, 0) = static_cast<float>(step);
    checkpoint::CheckpointWriter writer(folder(), options);
    writer.save(contents(step, score));
    writer.wait();
  }
  std::string folder() const { return temp_ / "checkpoints"; }
  std::string path(std::int64_t step) const {
    return folder() + "/" + checkpoint::checkpoint_name(step);
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const std::string& name : checkpoint::list_checkpoints(folder())) {
      found.push_back(*checkpoint::checkpoint_step(fs::path(name).filename().string()));
    }
    return found;
  }

  TemporaryFolder temp_;
  Tensor w_ = test::random_tensor<float>({4, 3}, 1);
  Tensor b_ = test::random_tensor<bf16>({5}, 2);
  Tensor m_ = test::random_tensor<float>({4, 3}, 3);
};

TEST_F(CheckpointTest, EverythingComesBack) {
  save(300, 0.25);
  checkpoint::Checkpoint saved = checkpoint::open_newest_checkpoint(folder(), false);
  EXPECT_EQ(saved.folder(), path(300));
  EXPECT_EQ(saved.step(), 300);
  EXPECT_EQ(saved.score(), 0.25);
  EXPECT_EQ(saved.state().at("loader").at("position"), 17);
  EXPECT_EQ(saved.config(), "[model]\nlayers = 2\n");
  EXPECT_EQ(saved.command(), "turbogr train x.toml");
  Tensor w(DType::kF32, {4, 3});
  Tensor b(DType::kBf16, {5});
  Tensor m(DType::kF32, {4, 3});
  saved.read_all({named("w", w), named("b", b), named("w.m", m)});
  EXPECT_EQ(std::memcmp(w.data(), w_.data(), w.bytes()), 0);
  EXPECT_EQ(std::memcmp(b.data(), b_.data(), b.bytes()), 0);
  EXPECT_EQ(std::memcmp(m.data(), m_.data(), m.bytes()), 0);
  EXPECT_EQ((saved.view<float, 2>("w")(3, 2)), (w_.view<float, 2>()(3, 2)));
  EXPECT_EQ(read_file(folder() + "/latest"), "step-000000300\n");
}

TEST_F(CheckpointTest, OneShardMayBeReadAlone) {
  save(1);
  Tensor w(DType::kF32, {4, 3});
  Tensor b(DType::kBf16, {5});
  const checkpoint::Checkpoint saved(path(1));
  saved.read_all({named("w", w), named("b", b)}, {"model"});
  EXPECT_EQ(std::memcmp(w.data(), w_.data(), w.bytes()), 0);
}

TEST_F(CheckpointTest, TheTensorsMayChangeAsSoonAsSaveReturns) {
  const Tensor before = test::converted<float, float>(w_);
  checkpoint::CheckpointWriter writer(folder());
  writer.save(contents(1));
  std::memset(w_.data(), 0, w_.bytes());
  writer.save(contents(2));  // the copy's memory is used again
  std::memset(w_.data(), 0xff, w_.bytes());
  writer.wait();
  EXPECT_EQ(
      std::memcmp(checkpoint::Checkpoint(path(1)).view<float, 2>("w").data, before.data(), 48), 0);
  EXPECT_EQ((checkpoint::Checkpoint(path(2)).view<float, 2>("w")(0, 0)), 0.0f);
}

TEST_F(CheckpointTest, TheForegroundWritesTheSameFiles) {
  save(1);
  const std::string background = read_file(path(1) + "/model.safetensors");
  save(1, std::nullopt, {.background = false});
  EXPECT_EQ(read_file(path(1) + "/model.safetensors"), background);
  checkpoint::CheckpointContents on_device = contents(1);
  for (NamedTensor& tensor : on_device.shards[0].tensors) tensor.device = Device::kCuda;
  EXPECT_TRUE(contains(message_of([&] { checkpoint::CheckpointWriter(folder()).save(on_device); }),
                       "'w' is on cuda; give the checkpoint writer"));
}

TEST_F(CheckpointTest, AStepSavedAgainReplacesTheOldOne) {
  save(5);
  w_.view<float, 2>()(1, 1) = 42.0f;
  save(5);
  EXPECT_EQ((checkpoint::Checkpoint(path(5)).view<float, 2>("w")(1, 1)), 42.0f);
  EXPECT_EQ(steps(), std::vector<std::int64_t>{5});
  EXPECT_FALSE(fs::exists(path(5) + ".partial"));
}

TEST_F(CheckpointTest, KeepsTheNewestAndTheBest) {
  const checkpoint::CheckpointWriterOptions options = {.keep_last = 2, .keep_best = 1};
  save(1, 0.3, options);
  save(2, 0.9, options);
  save(3, 0.5, options);
  save(4, std::nullopt, options);
  save(5, 0.9, options);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{5, 4, 2}));  // 2 was as good before 5
  EXPECT_EQ(read_file(folder() + "/best"), "step-000000002\n");
  save(6, 0.95, options);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{6, 5}));
  EXPECT_EQ(read_file(folder() + "/best"), "step-000000006\n");
}

TEST_F(CheckpointTest, LatestRulesOverTheStepNumber) {
  const checkpoint::CheckpointWriterOptions all = {.keep_last = 9};
  save(1, std::nullopt, all);
  save(2, std::nullopt, all);
  save(3, std::nullopt, all);
  replace_file(folder() + "/latest", "step-000000002\n");
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 3, 1}));
  fs::remove(folder() + "/latest");
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{3, 2, 1}));
  replace_file(folder() + "/latest", "step-000000099\n");
  EXPECT_TRUE(contains(message_of([&] { checkpoint::open_newest_checkpoint(folder(), false); }),
                       "names 'step-000000099', and there is no such checkpoint"));
  EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), true).step(), 3);
}

TEST_F(CheckpointTest, StepsOfAnAbandonedPastGoWithTheNextSave) {
  save(10);
  save(20);
  save(15);  // fell back to 10, went on
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{15, 10}));
}

TEST_F(CheckpointTest, HalfWrittenFoldersAreNeverTakenAndGoAway) {
  save(1);
  fs::create_directories(path(2) + ".partial");
  std::ofstream(path(2) + ".partial/manifest.json") << "{}";
  EXPECT_EQ(steps(), std::vector<std::int64_t>{1});
  const checkpoint::CheckpointWriter writer(folder());
  EXPECT_FALSE(fs::exists(path(2) + ".partial"));
  EXPECT_EQ(checkpoint::checkpoint_step("step-000000002"), 2);
  EXPECT_FALSE(checkpoint::checkpoint_step("step-2").has_value());
  EXPECT_FALSE(checkpoint::checkpoint_step("step-000000002.partial").has_value());
  EXPECT_FALSE(checkpoint::checkpoint_step("other").has_value());
}

TEST_F(CheckpointTest, AnyDamageIsNamedAndTheOlderGoodOneOffered) {
  struct Case {
    std::string what;
    std::function<void()> damage;
    std::string words;
  };
  const std::string shard = path(2) + "/model.safetensors";
  const std::vector<Case> cases = {
      {"flipped byte", [&] { flip_byte(shard, 2); }, "is damaged: the checksum differs"},
      {"flipped header", [&] { flip_byte(shard, 130); }, "model.safetensors'"},
      {"short shard", [&] { fs::resize_file(shard, 100); }, "it has 100 bytes, "},
      {"missing shard", [&] { fs::remove(path(2) + "/optim.safetensors"); },
       "optim.safetensors' is missing"},
      {"missing manifest", [&] { fs::remove(path(2) + "/manifest.json"); }, "it has no manifest"},
      {"foreign manifest",
       [&] { replace_file(path(2) + "/manifest.json", R"({"format": "other"})"); },
       "not one of a turbogr checkpoint"},
      {"broken manifest", [&] { fs::resize_file(path(2) + "/manifest.json", 50); },
       "manifest.json is damaged"},
      {"edited manifest",
       [&] {
         std::string text = read_file(path(2) + "/manifest.json");
         text.replace(text.find("\"step\": 2"), 9, "\"step\": 3");
         replace_file(path(2) + "/manifest.json", text);
       },
       "the checksum differs"},
      {"another version",
       [&] {
         replace_file(path(2) + "/manifest.json",
                      R"({"format": "turbogr checkpoint", "version": 9})");
       },
       "it has version 9, this program reads 1 to 2"},
      {"config", [&] { flip_byte(path(2) + "/config.toml", 3); }, "'config.toml' is damaged"},
      {"state", [&] { flip_byte(path(2) + "/state.json", 3); }, "'state.json' is damaged"},
      {"no state", [&] { fs::remove(path(2) + "/state.json"); }, "No such file"},
      {"manifest a pipe", [&] { make_pipe(path(2) + "/manifest.json"); }, "is not a plain file"},
      {"state a pipe", [&] { make_pipe(path(2) + "/state.json"); }, "is not a plain file"},
      {"shard a pipe", [&] { make_pipe(shard); }, "is no plain file"},
      {"manifest endless",
       [&] { fs::resize_file(path(2) + "/manifest.json", std::uintmax_t{1} << 40); },
       "has 1099511627776 bytes; at most "},
  };
  for (const Case& c : cases) {
    fs::remove_all(folder());
    save(1);
    save(2);
    c.damage();
    const std::string message =
        message_of([&] { checkpoint::open_newest_checkpoint(folder(), false); });
    EXPECT_TRUE(contains(message, c.words)) << c.what << ": " << message;
    const std::string named = message_of([&] { checkpoint::open_named_checkpoint(path(2)); });
    EXPECT_TRUE(contains(named, c.words)) << c.what << ": " << named;
    EXPECT_TRUE(contains(named, "The newest good one beside it is '" + path(1) + "'")) << named;
    EXPECT_EQ(checkpoint::open_named_checkpoint(path(1)).step(), 1);
    EXPECT_TRUE(message.starts_with("checkpoint '" + path(2) + "'")) << c.what << ": " << message;
    EXPECT_TRUE(contains(
        message, "The newest good one is '" + path(1) + "': set checkpoint.fall_back = true"))
        << c.what << ": " << message;
    EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), true).step(), 1) << c.what;
  }
}

TEST_F(CheckpointTest, ReadingADamagedTensorFailsEvenWithoutVerify) {
  save(1);
  flip_byte(path(1) + "/optim.safetensors", 1);
  const checkpoint::Checkpoint saved(path(1));
  EXPECT_TRUE(contains(message_of([&] { saved.read(named("w.m", m_)); }), "'w.m' in"));
  saved.read(named("w", w_));  // its neighbour is whole
}

TEST_F(CheckpointTest, NoCheckpointAndNoGoodOneAreSaid) {
  EXPECT_TRUE(contains(message_of([&] { checkpoint::open_newest_checkpoint(folder(), true); }),
                       "there is no checkpoint in"));
  save(1);
  flip_byte(path(1) + "/model.safetensors", 1);
  EXPECT_TRUE(contains(message_of([&] { checkpoint::open_newest_checkpoint(folder(), true); }),
                       "None of the 1 checkpoints"));
}

TEST_F(CheckpointTest, AnotherModelsCheckpointIsRefusedWithWhatDiffers) {
  save(1);
  const checkpoint::Checkpoint saved(path(1));
  Tensor wide(DType::kF32, {4, 7});
  Tensor more(DType::kF32, {1});
  const std::string message = message_of([&] {
    saved.read_all({named("w", wide), named("x1", more), named("x2", more), named("x3", more),
                    named("x4", more), named("w.m", m_)});
  });
  EXPECT_TRUE(contains(message, "it is of another model")) << message;
  EXPECT_TRUE(contains(message, "it lacks x1, x2, x3 and 1 more")) << message;
  EXPECT_TRUE(contains(message, "w is f32 [4, 3], f32 [4, 7] wanted")) << message;
  EXPECT_TRUE(contains(message, "it also has b")) << message;
  EXPECT_TRUE(contains(message_of([&] { saved.read(named("x", more)); }), "it has no tensor 'x'"));
}

TEST_F(CheckpointTest, ContentsThatCannotBeToldApartAreRefused) {
  checkpoint::CheckpointWriter writer(folder());
  checkpoint::CheckpointContents twice = contents(1);
  twice.shards[1].tensors.push_back(named("w", w_));
  EXPECT_TRUE(contains(message_of([&] { writer.save(twice); }), "two tensors named 'w'"));
  twice = contents(1);
  twice.shards[1].name = "model";
  EXPECT_TRUE(contains(message_of([&] { writer.save(twice); }), "shard name 'model'"));
  twice.shards[1].name = "a/b";
  EXPECT_TRUE(contains(message_of([&] { writer.save(twice); }), "shard name 'a/b'"));
  EXPECT_TRUE(contains(message_of([&] { writer.save(contents(-1)); }), "step -1"));
  EXPECT_TRUE(
      contains(message_of([&] { checkpoint::CheckpointWriter(folder(), {.keep_last = 0}); }),
               "keep_last = 0"));
  EXPECT_TRUE(contains(message_of([&] { checkpoint::CheckpointWriter("/dev/null/x"); }),
                       "cannot make the checkpoint folder '/dev/null/x'"));
}

// keep_last = 1: each save removes the checkpoint a reader may be about to open, and saving a step
// again puts another in its place.
TEST_F(CheckpointTest, ReadersGetAWholeOneWhileAnotherIsSaved) {
  save(1, 1.0, {.keep_best = 1});
  std::atomic<bool> done = false;
  std::thread writer([&] {
    checkpoint::CheckpointWriter out(folder(),
                                     {.keep_last = 1, .keep_best = 1, .background = false});
    for (std::int64_t step = 2; !done; ++step) {
      out.save(contents(step));
      out.save(contents(step, static_cast<double>(step)));
    }
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(message_of([&] { checkpoint::open_newest_checkpoint(folder(), false); }), "");
    EXPECT_EQ(message_of([&] { checkpoint::open_pointed_checkpoint(folder() + "/latest"); }), "");
    EXPECT_EQ(message_of([&] { checkpoint::open_pointed_checkpoint(folder() + "/best"); }), "");
  }
  done = true;
  writer.join();
}

TEST_F(CheckpointTest, NothingIsTouchedInAFolderThatIsNoLongerTheWriters) {
  bool ours = true;
  int asked = 0;
  checkpoint::CheckpointWriter writer(folder(), {.check_folder = [&] {
                                        ++asked;
                                        TGR_CHECK(ours, "the folder is another's");
                                      }});
  writer.save(contents(1));
  writer.wait();
  EXPECT_GE(asked, 2) << "before the tensors are written and before the folder is renamed";
  ours = false;
  fs::create_directories(path(2) + ".partial");  // the other one is saving the same step
  writer.save(contents(2));
  EXPECT_EQ(message_of([&] { writer.wait(); }), "the folder is another's");
  EXPECT_TRUE(fs::exists(path(2) + ".partial"));
  EXPECT_FALSE(fs::exists(path(2)));
}

// Sums that are right over fields that are not: made by hand.
TEST_F(CheckpointTest, AForgedManifestIsRefusedInWords) {
  save(1);
  const nlohmann::json good = nlohmann::json::parse(read_file(path(1) + "/manifest.json"));
  const auto message = [&](const char* field, const nlohmann::json& value) {
    nlohmann::json forged = good;
    forged[field] = value;
    forged["crc32c"] = checkpoint::manifest_sum(forged);
    replace_file(path(1) + "/manifest.json", forged.dump());
    return message_of([&] { checkpoint::Checkpoint(path(1)); });
  };
  for (const char* field : {"step", "score", "command", "files", "shards"}) {
    const std::string words = message(field, {{"model", "x"}});
    EXPECT_TRUE(contains(words, "of another kind than this program writes")) << field << words;
    EXPECT_FALSE(contains(words, "json.exception")) << words;
  }
  replace_file(path(1) + "/state.json", "[]");
  nlohmann::json files = good["files"];
  files["state.json"] = checkpoint::sum_text(std::string("[]"));
  EXPECT_TRUE(contains(message("files", files), "state.json is not a JSON object"));
}

TEST_F(CheckpointTest, AForgedManifestLeadsToNoOtherStepAndNoOtherFolder) {
  save(1);
  save(2);
  const nlohmann::json good = nlohmann::json::parse(read_file(path(2) + "/manifest.json"));
  const auto message = [&](nlohmann::json forged) {
    forged["crc32c"] = checkpoint::manifest_sum(forged);
    replace_file(path(2) + "/manifest.json", forged.dump());
    return message_of([&] { checkpoint::Checkpoint(path(2)); });
  };
  for (const int step : {1, 3, -2}) {
    nlohmann::json forged = good;
    forged["step"] = step;
    EXPECT_TRUE(contains(message(forged), "is of step " + std::to_string(step))) << step;
  }
  for (const std::string& name :
       {"../" + checkpoint::checkpoint_name(1) + "/model", path(1) + "/model", std::string()}) {
    nlohmann::json forged = good;
    forged["shards"] = {{name, good["shards"]["model"]}};
    EXPECT_TRUE(contains(message(forged), "which is no plain name")) << name;
    forged["shards"] = nlohmann::json::object();
    forged["tables"] = {
        {"../" + name,
         {{"rows", 1}, {"placement", "round_robin"}, {"parts", {good["shards"]["model"]}}}}};
    EXPECT_TRUE(contains(message(forged), "which is no plain name")) << name;
  }
  EXPECT_EQ(message(good), "");
}

// `latest` and `best` are read whole; what is no file is a fault of theirs, not a reason to wait.
TEST_F(CheckpointTest, PointersThatAreNoFilesAreSaid) {
  save(1, 0.5, {.keep_best = 1});
  ASSERT_EQ(checkpoint::best_checkpoint(folder()), path(1));
  make_pipe(folder() + "/best");
  EXPECT_EQ(checkpoint::best_checkpoint(folder()), "");
  make_pipe(folder() + "/latest");
  EXPECT_TRUE(contains(checkpoint::lost_latest(folder()), "is not a plain file"));
  EXPECT_TRUE(contains(message_of([&] { checkpoint::open_newest_checkpoint(folder(), false); }),
                       "is not a plain file"));
  EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), true).step(), 1);
  fs::remove(folder() + "/latest");
  fs::create_symlink("/dev/zero", folder() + "/latest");
  EXPECT_TRUE(contains(checkpoint::lost_latest(folder()), "is not a plain file"));
}

// Its name is taken by something else when the old one is moved out of the way.
TEST_F(CheckpointTest, AnOldOneThatCannotBeRemovedIsNoFailureToWrite) {
  save(1);
  checkpoint::CheckpointWriter writer(folder(), {.keep_last = 1, .background = false});
  fs::create_directories(path(1) + ".partial/x");
  EXPECT_EQ(message_of([&] { writer.save(contents(2)); }), "");
  EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), false).step(), 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{2, 1}));
}

TEST_F(CheckpointTest, ABestThatCannotBeNamedIsNoFailureToWriteTheCheckpoint) {
  checkpoint::CheckpointWriter writer(folder(), {.keep_best = 1, .background = false});
  fs::create_directories(folder() + "/best/x");
  const std::string message = message_of([&] { writer.save(contents(2, 0.5)); });
  EXPECT_TRUE(contains(message, "'" + path(2) + "' was written, but `best`")) << message;
  EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), false).step(), 2);
}

// A file-size limit stands for a full disk: writes past it fail with an errno of their own.
TEST_F(CheckpointTest, AFullDiskIsReportedAtTheNextCallAndTheOldOneStays) {
  save(1);
  Tensor large(DType::kF32, {1 << 18});
  checkpoint::CheckpointContents big = contents(2);
  big.shards[0].tensors.push_back(named("large", large));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{1 << 16, old.rlim_max};

  checkpoint::CheckpointWriter writer(folder());
  setrlimit(RLIMIT_FSIZE, &small);
  writer.save(big);
  const std::string message = message_of([&] { writer.wait(); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, SIG_DFL);

  EXPECT_TRUE(contains(message, "could not be written: cannot write")) << message;
  EXPECT_TRUE(contains(message, "File too large; free some room")) << message;
  EXPECT_TRUE(contains(message, "The newest whole one is '" + path(1) + "'")) << message;
  EXPECT_FALSE(fs::exists(path(2) + ".partial"));
  EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), false).step(), 1);
  writer.save(big);  // there is room again
  writer.wait();
  EXPECT_EQ(checkpoint::open_newest_checkpoint(folder(), false).step(), 2);
}

// Written by three ranks at the same time, read by any number: each row is the one of its id.
TEST(ShardedCheckpoint, PartsOfRanksMakeATableForAnyNumberOfThem) {
  constexpr std::int64_t kRows = 50, kWidth = 3;
  const test::TemporaryFolder folder;
  const std::string path = folder / "checkpoints";
  for (const embedding::Placement placement :
       {embedding::Placement::kRoundRobin, embedding::Placement::kHash}) {
    dist::run_threads(3, [&](dist::Communicator& world) {
      const embedding::Sharding sharding(kRows, world.size(), placement);
      embedding::ItemTable part(sharding.rows_of(world.rank()), kWidth,
                                embedding::SparseOptimiser::kAdaGrad);
      for (std::int64_t row = 0; row < part.rows(); ++row) {
        const auto id = static_cast<float>(sharding.id_of(world.rank(), row));
        for (std::int64_t c = 0; c < kWidth; ++c) {
          part.weight_tensor().view<float, 2>()(row, c) = 10 * id + static_cast<float>(c);
        }
        part.second_moment().view<float, 1>()(row) = -id;
      }
      const auto ranks = world.split(0, world.rank(), "checkpoints");
      checkpoint::CheckpointWriter writer(path, {.ranks = ranks.get()});
      checkpoint::CheckpointContents contents = {
          .step = 7,
          .tables = {checkpoint::table_contents("items", part, sharding, world.rank())},
          .state = nlohmann::json::object()};
      writer.save(contents);
      part.weight_tensor().view<float, 2>()(0, 0) = -1;  // after the copy was taken
      writer.wait();
    });
    for (const int readers : {1, 2, 3, 7}) {
      dist::run_threads(readers, [&](dist::Communicator& world) {
        const Context ctx({.threads = 1});
        const checkpoint::Checkpoint saved = checkpoint::open_newest_checkpoint(world, path, false);
        const embedding::Sharding sharding(kRows, world.size(), embedding::Placement::kRoundRobin);
        embedding::ItemTable part(sharding.rows_of(world.rank()), kWidth,
                                  embedding::SparseOptimiser::kAdaGrad);
        checkpoint::read_table(ctx, saved, "items", checkpoint::TableParts::kAll, sharding,
                               world.rank(), part);
        for (std::int64_t row = 0; row < part.rows(); ++row) {
          const auto id = static_cast<float>(sharding.id_of(world.rank(), row));
          EXPECT_EQ(part.weights()(row, 2), 10 * id + 2);
          EXPECT_EQ((part.second_moment().view<float, 1>()(row)), -id);
        }
        embedding::ItemTable adam(part.rows(), kWidth, embedding::SparseOptimiser::kAdamW);
        EXPECT_TRUE(contains(message_of([&] {
                               checkpoint::read_table(ctx, saved, "items",
                                                      checkpoint::TableParts::kAll, sharding,
                                                      world.rank(), adam);
                             }),
                             "it lacks items.first_moment"));
      });
    }
  }
}

// Forty megabytes in two parts, which are read and let go in stretches.
TEST(ShardedCheckpoint, ALargeTableIsReadInStretches) {
  constexpr std::int64_t kRows = 2501, kWidth = 4096;
  const test::TemporaryFolder folder;
  const std::string path = folder / "checkpoints";
  dist::run_threads(2, [&](dist::Communicator& world) {
    const embedding::Sharding sharding(kRows, 2, embedding::Placement::kHash);
    embedding::ItemTable part(sharding.rows_of(world.rank()), kWidth,
                              embedding::SparseOptimiser::kSgd);
    for (std::int64_t row = 0; row < part.rows(); ++row) {
      const std::int64_t id = sharding.id_of(world.rank(), row);
      for (std::int64_t c = 0; c < kWidth; ++c) {
        part.weight_tensor().view<float, 2>()(row, c) = static_cast<float>(id * kWidth + c);
      }
    }
    const auto ranks = world.split(0, world.rank(), "checkpoints");
    checkpoint::CheckpointWriter writer(path, {.ranks = ranks.get()});
    writer.save({.step = 1,
                 .tables = {checkpoint::table_contents("items", part, sharding, world.rank())},
                 .state = nlohmann::json::object()});
    writer.wait();
  });
  const checkpoint::Checkpoint saved = checkpoint::open_newest_checkpoint(path, false);
  const embedding::Sharding whole(kRows, 1, embedding::Placement::kRoundRobin);
  embedding::ItemTable table(kRows, kWidth, embedding::SparseOptimiser::kSgd);
  checkpoint::read_table(Context({.threads = 2}), saved, "items", checkpoint::TableParts::kAll,
                         whole, 0, table);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    wrong += table.weights().data[i] != static_cast<float>(i) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
}

// A fault of one rank is everybody's, and nothing half-written is left.
TEST(ShardedCheckpoint, AFaultOfOneRankIsEverybodys) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "checkpoints";
  dist::run_threads(3, [&](dist::Communicator& world) {
    const embedding::Sharding sharding(6, world.size(), embedding::Placement::kRoundRobin);
    embedding::ItemTable part(2, 1, embedding::SparseOptimiser::kSgd);
    const auto ranks = world.split(0, world.rank(), "checkpoints");
    checkpoint::CheckpointWriter writer(path, {.ranks = ranks.get()});
    checkpoint::CheckpointTable table =
        checkpoint::table_contents("items", part, sharding, world.rank());
    if (world.rank() == 1) table.tensors.push_back(table.tensors[0]);  // twice the same name
    writer.save({.step = 1, .tables = {table}, .state = nlohmann::json::object()});
    const std::string message = message_of([&] { writer.wait(); });
    EXPECT_TRUE(contains(message, "rank 1: ")) << message;
    EXPECT_TRUE(contains(message, "the tensor name 'items' is taken")) << message;
  });
  EXPECT_TRUE(checkpoint::list_checkpoints(path).empty());
  EXPECT_FALSE(std::filesystem::exists(path + "/step-000000001.partial"));
}

TEST(ShardedCheckpoint, RanksFallBackTogether) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "checkpoints";
  dist::run_threads(2, [&](dist::Communicator& world) {
    const embedding::Sharding sharding(6, world.size(), embedding::Placement::kRoundRobin);
    embedding::ItemTable part(3, 1, embedding::SparseOptimiser::kSgd);
    const auto ranks = world.split(0, world.rank(), "checkpoints");
    checkpoint::CheckpointWriter writer(path, {.ranks = ranks.get()});
    for (const std::int64_t step : {1, 2}) {
      writer.save({.step = step,
                   .tables = {checkpoint::table_contents("items", part, sharding, world.rank())},
                   .state = nlohmann::json::object()});
    }
    writer.wait();
    world.barrier();
    if (world.rank() == 0) {
      const std::string file = path + "/step-000000002/items-00002-of-00002.safetensors";
      flip_byte(file, 1);
    }
    world.barrier();
    EXPECT_EQ(checkpoint::open_newest_checkpoint(world, path, true).step(), 1);
    const std::string message =
        message_of([&] { checkpoint::open_newest_checkpoint(world, path, false); });
    EXPECT_TRUE(contains(message, "set checkpoint.fall_back = true")) << message;
  });
}

// Rank 0 says which one it is, each rank looks at its share of the files, and what one of them
// finds is everybody's.
TEST(ShardedCheckpoint, RanksOpenWhatRank0NamesAndShareItsFaults) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "checkpoints";
  dist::run_threads(2, [&](dist::Communicator& world) {
    const embedding::Sharding sharding(6, world.size(), embedding::Placement::kRoundRobin);
    embedding::ItemTable part(3, 1, embedding::SparseOptimiser::kSgd);
    const auto ranks = world.split(0, world.rank(), "checkpoints");
    checkpoint::CheckpointWriter writer(path, {.ranks = ranks.get()});
    for (const std::int64_t step : {1, 2}) {
      writer.save({.step = step,
                   .tables = {checkpoint::table_contents("items", part, sharding, world.rank())},
                   .state = nlohmann::json::object()});
    }
    writer.wait();
    world.barrier();
    const bool leads = world.rank() == 0;
    const auto named = [&](int step) { return path + "/" + checkpoint::checkpoint_name(step); };
    const auto open = [&](const std::string& which) {
      return checkpoint::open_named_checkpoint(world, which).step();
    };
    EXPECT_EQ(open(leads ? named(2) : named(1)), 2);
    EXPECT_EQ(open(leads ? named(1) : "nowhere"), 1);
    const auto latest = [&] {
      return checkpoint::open_pointed_checkpoint(world, leads ? path + "/latest" : "nowhere");
    };
    EXPECT_EQ(latest().step(), 2);
    world.barrier();
    // The second of its files, which rank 1 looks at and rank 0 does not.
    if (leads) flip_byte(named(2) + "/items-00002-of-00002.safetensors", 1);
    world.barrier();
    checkpoint::Checkpoint own_share(named(2));
    EXPECT_EQ(message_of([&] { own_share.verify(world.rank(), 2); }).empty(), leads);
    for (const std::string& message :
         {message_of([&] { open(named(2)); }), message_of([&] { latest(); })}) {
      EXPECT_TRUE(contains(message, "items-00002-of-00002.safetensors' is damaged")) << message;
      EXPECT_TRUE(contains(message, "(found by rank 1)")) << message;
      EXPECT_TRUE(contains(message, "The newest good one beside it is '" + named(1))) << message;
    }
    // Another machine with other files under the same name.
    const std::string gone = message_of([&] { open(leads ? named(3) : named(1)); });
    EXPECT_TRUE(contains(gone, "step-000000003': it has no manifest")) << gone;
  });
}

}  // namespace
}  // namespace turbogr
