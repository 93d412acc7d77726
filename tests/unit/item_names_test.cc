#include "turbogr/run/item_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/messages.h"
#include "tests/support/stores.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/checkpoint_writer.h"
#include "turbogr/checkpoint/shared_checkpoint.h"
#include "turbogr/run/config.h"

namespace turbogr::run {
namespace {

using test::message_of;

const embedding::Sharding kWhole(5, 1, embedding::Placement::kRoundRobin);

class ItemNamesTest : public testing::Test {
 protected:
  void SetUp() override { test::write_numbered_store(folder_ / "store", {2, 3}); }

  // With the names' offsets as given, or as they are.
  checkpoint::Checkpoint saved(const std::vector<std::int64_t>& forged = {}) {
    ItemNames names;
    const data::Store store(folder_ / "store");
    std::vector<NamedTensor> tensors = names.tensors(parse_config("", "test.toml"), store);
    Tensor offsets(DType::kI64, {static_cast<std::int64_t>(forged.size())});
    if (!forged.empty()) {
      std::copy(forged.begin(), forged.end(), offsets.view<std::int64_t, 1>().data);
      tensors[0] = named(tensors[0].name, offsets);
    }
    checkpoint::CheckpointWriter writer(folder_ / "checkpoints");
    Tensor rows(DType::kF32, {5, 2});
    tensors.push_back(named("items", rows));
    writer.save({.step = 1,
                 .shards = {{"model", tensors}},
                 .state = nlohmann::json::object(),
                 .config = ""});
    writer.wait();
    return checkpoint::open_newest_checkpoint(folder_ / "checkpoints", false);
  }

  test::TemporaryFolder folder_;
};

TEST_F(ItemNamesTest, ComeBack) {
  const data::Store store(folder_ / "store");
  check_item_names(saved(), Config(), store);
  embedding::ItemTable rows(5, 2, embedding::SparseOptimiser::kSgd);
  EXPECT_EQ(read_known_rows(Context({.threads = 1}), saved(), store, kWhole, 0, rows), 5);
}

// Retrieval finds items by their ids again; a ranking model has a row for each place.
TEST_F(ItemNamesTest, OfAnotherStoreAreRefusedWithWhatTheTaskCanDo) {
  test::write_numbered_store(folder_ / "larger", {2, 4});
  const data::Store larger(folder_ / "larger");
  Config config;
  for (const std::string task : {"retrieval", "ranking"}) {
    config.task = task;
    const std::string message = message_of([&] { check_item_names(saved(), config, larger); });
    EXPECT_NE(message.find("has 5 items and the store"), std::string::npos) << message;
    EXPECT_EQ(message.find("run.start_from") != std::string::npos, task == "retrieval") << message;
  }
}

// Five names of one byte each. What leads out of the text must not be followed.
TEST_F(ItemNamesTest, OffsetsThatLeaveTheTextAreRefused) {
  const data::Store store(folder_ / "store");
  embedding::ItemTable rows(5, 2, embedding::SparseOptimiser::kSgd);
  for (const std::vector<std::int64_t>& forged :
       std::vector<std::vector<std::int64_t>>{{0, 1, 2, 3, 4, 1'000'000'000'000},
                                              {-7, 1, 2, 3, 4, 5},
                                              {0, 4, 2, 3, 4, 5},
                                              {0, 1, 99, 3, 4, 5},
                                              {0, 1, 2, 3, 4, 4}}) {
    const checkpoint::Checkpoint checkpoint = saved(forged);
    for (const std::string& message :
         {message_of([&] { check_item_names(checkpoint, Config(), store); }), message_of([&] {
            read_known_rows(Context({.threads = 1}), checkpoint, store, kWhole, 0, rows);
          })}) {
      EXPECT_NE(message.find("do not rise from 0 to the 5 bytes"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace turbogr::run
