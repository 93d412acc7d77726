#include "turbogr/run/vector_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/safetensors.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/tensor.h"

namespace turbogr::run {
namespace {

using test::message_of;

constexpr std::int64_t kItems = 150'000, kUsers = 3, kWidth = 2;

class VectorFiles : public testing::Test {
 protected:
  void SetUp() override {
    offsets_.push_back(0);
    for (std::int64_t i = 0; i < kItems; ++i) {
      text_ += "item" + std::to_string(i % 1000);
      offsets_.push_back(std::ssize(text_));
      trained_.push_back(i % 3 == 0);
    }
  }

  // Every block of so many rows at most.
  std::vector<std::string> write(const std::string& name, std::int64_t block) {
    const auto giver = [block](Tensor& from) {
      return [&from, block](const TakeVectors& take) {
        const View<float, 2> all = from.view<float, 2>();
        for (std::int64_t first = 0; first < all.shape[0]; first += block) {
          take({&all(first, 0), {std::min(block, all.shape[0] - first), kWidth}});
        }
      };
    };
    return write_vectors(folder_ / name, {{"item", kWidth, items_, &trained_, giver(of_items_)},
                                          {"user", kWidth, users_, nullptr, giver(of_users_)}});
  }
  std::string content(const std::string& name) { return read_file((folder_ / name).string()); }

  test::TemporaryFolder folder_;
  std::string text_;
  std::vector<std::int64_t> offsets_;
  const std::vector<std::int64_t> numbers_ = {-4, 7, 1'000'000'000'000};
  std::vector<std::uint8_t> trained_;
  Tensor of_items_ = test::random_tensor<float>({kItems, kWidth}, 1);
  Tensor of_users_ = test::random_tensor<float>({kUsers, kWidth}, 2);
  data::IdMap items_, users_ = data::IdMap::integers(numbers_);
};

TEST_F(VectorFiles, AreTheSameByTheRowAndAsAWhole) {
  items_ = data::IdMap::strings(offsets_, text_);
  for (const std::string extension : {".safetensors", ".npy"}) {
    const std::vector<std::string> small = write("small" + extension, 1);
    const std::vector<std::string> large = write("large" + extension, kItems);
    ASSERT_EQ(small.size(), large.size());
    for (std::size_t i = 0; i < small.size(); ++i) {
      EXPECT_EQ(read_file(small[i]), read_file(large[i])) << small[i];
    }
  }
}

TEST_F(VectorFiles, SafetensorsHoldVectorsIdsAndMarks) {
  items_ = data::IdMap::strings(offsets_, text_);
  write("v.safetensors", 7);
  const checkpoint::SafetensorsFile file(folder_ / "v.safetensors");
  const auto same = [&](std::string_view name, const void* wanted, std::size_t bytes) {
    const checkpoint::TensorEntry& entry = file.at(name);
    return entry.bytes == bytes && std::equal(file.data(entry), file.data(entry) + bytes,
                                              static_cast<const std::byte*>(wanted));
  };
  EXPECT_TRUE(same("items", of_items_.data(), of_items_.bytes()));
  EXPECT_TRUE(same("users", of_users_.data(), of_users_.bytes()));
  EXPECT_TRUE(same("items_trained", trained_.data(), trained_.size()));
  EXPECT_TRUE(same("item_ids.text", text_.data(), text_.size()));
  EXPECT_TRUE(same("item_ids.ends", offsets_.data() + 1, kItems * sizeof(offsets_[0])));
  EXPECT_TRUE(same("user_ids", numbers_.data(), kUsers * sizeof(numbers_[0])));
}

TEST_F(VectorFiles, NumPysFilesHoldTheSame) {
  items_ = data::IdMap::strings(offsets_, text_);
  write("v.npy", 7);
  const auto data_of = [&](const std::string& name, const std::string& header) {
    const std::string all = content("v." + name + ".npy");
    EXPECT_NE(all.find(header), std::string::npos) << all.substr(0, 128);
    return all.substr(all.find('\n') + 1);
  };
  const auto bytes = [](const void* data, std::size_t size) {
    return std::string(static_cast<const char*>(data), size);
  };
  EXPECT_EQ(data_of("items", "'<f4', 'fortran_order': False, 'shape': (150000,2,)"),
            bytes(of_items_.data(), of_items_.bytes()));
  EXPECT_EQ(data_of("users", "'shape': (3,2,)"), bytes(of_users_.data(), of_users_.bytes()));
  EXPECT_EQ(data_of("items_trained", "'|u1'"), bytes(trained_.data(), trained_.size()));
  EXPECT_EQ(data_of("user_ids", "'<i8'"), bytes(numbers_.data(), kUsers * sizeof(numbers_[0])));
  const std::string texts = data_of("item_ids", "'|S7'");
  ASSERT_EQ(texts.size(), 7 * kItems);
  EXPECT_EQ(texts.substr(7 * 999, 14), std::string("item999item0\0\0", 14));
}

TEST_F(VectorFiles, RowsThatAreMissingLeaveNoFile) {
  const std::string message = message_of([&] {
    write_vectors(folder_ / "v.safetensors",
                  {{"user", kWidth, users_, nullptr, [&](const TakeVectors& take) {
                      take({of_users_.view<float, 2>().data, {2, kWidth}});
                    }}});
  });
  EXPECT_NE(message.find("'users' of shape [3, 2] came as 16 bytes; 24 are wanted"),
            std::string::npos)
      << message;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace turbogr::run
