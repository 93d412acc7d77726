#include "turbogr/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/support/data.h"
#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/crc32c.h"
#include "turbogr/core/output_file.h"

namespace turbogr {
namespace {

using test::message_of;
using test::TemporaryFolder;

// A file of this header and this many zero bytes.
void write_raw(const std::string& path, const std::string& header, std::size_t data_bytes) {
  std::ofstream file(path, std::ios::binary);
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size() + padding.size();
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header << padding << std::string(data_bytes, '\0');
}

class SafetensorsTest : public testing::Test {
 protected:
  std::string open_message(const std::string& header, std::size_t data_bytes) {
    write_raw(path_, header, data_bytes);
    return message_of([&] { checkpoint::SafetensorsFile file(path_); });
  }
  void expect_refused(const std::string& header, std::size_t data_bytes, const std::string& words) {
    const std::string message = open_message(header, data_bytes);
    EXPECT_NE(message.find(words), std::string::npos) << header << "\ngives: " << message;
    EXPECT_NE(message.find(path_), std::string::npos) << message;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "x.safetensors";
};

TEST_F(SafetensorsTest, EveryFormatComesBackBitForBit) {
  std::vector<Tensor> tensors;
  tensors.push_back(test::random_tensor<double>({3, 5}, 1));
  tensors.push_back(test::random_tensor<float>({7}, 2));
  tensors.push_back(test::random_tensor<bf16>({2, 1, 3}, 3));
  tensors.push_back(test::random_tensor<f16>({5}, 4));
  tensors.emplace_back(DType::kI64, std::vector<std::int64_t>{2});
  tensors.emplace_back(DType::kI32, std::vector<std::int64_t>{3});
  tensors.emplace_back(DType::kU8, std::vector<std::int64_t>{5});
  tensors.emplace_back(DType::kF32, std::vector<std::int64_t>{});      // a scalar
  tensors.emplace_back(DType::kF32, std::vector<std::int64_t>{4, 0});  // nothing
  for (std::size_t i = 4; i < 8; ++i) {
    for (std::size_t at = 0; at < tensors[i].bytes(); ++at) {
      tensors[i].data()[at] = static_cast<std::byte>(31 * at + i);
    }
  }
  std::vector<NamedTensor> list;
  // Narrow formats first: the writer must put them last to keep the wide ones aligned.
  for (std::size_t i = tensors.size(); i-- > 0;) {
    list.push_back(named(fmt::format("t{}", i), tensors[i]));
  }
  const checkpoint::SafetensorsSums sums =
      checkpoint::write_safetensors(path_, list, {{"made_by", "a \"test\""}});

  const checkpoint::SafetensorsFile file(path_);
  ThreadPool pool(1);
  EXPECT_EQ(file.metadata().at("made_by"), "a \"test\"");
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.file_bytes(), sums.file_bytes);
  EXPECT_EQ(file.header_sum(), sums.header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = fmt::format("t{}", i);
    const checkpoint::TensorEntry& entry = file.at(name);
    EXPECT_EQ(entry.begin % size_of(entry.dtype), 0u);
    EXPECT_EQ(file.sum_of(pool, entry), sums.tensors.at(name));
    Tensor back(tensors[i].dtype(), tensors[i].shape());
    std::memset(back.data(), 0xee, back.bytes());
    file.read(named(name, back));
    EXPECT_EQ(std::memcmp(back.data(), tensors[i].data(), back.bytes()), 0) << name;
  }
  EXPECT_EQ((file.view<double, 2>("t0")(2, 4)), (tensors[0].view<double, 2>()(2, 4)));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.data(file.entries()[0])) % 64, 0u);
}

TEST_F(SafetensorsTest, AFileOfNoTensorsIsSound) {
  checkpoint::write_safetensors(path_, {});
  EXPECT_TRUE(checkpoint::SafetensorsFile(path_).entries().empty());
}

TEST_F(SafetensorsTest, AnyNumberOfThreadsWritesTheSameFile) {
  Tensor a = test::random_tensor<float>({3'000'001}, 1);  // three pieces, the last a part of one
  Tensor b = test::random_tensor<float>({33}, 2);
  const std::vector<NamedTensor> tensors = {named("a", a), named("b", b)};
  const checkpoint::SafetensorsSums one = checkpoint::write_safetensors(path_, tensors);
  const std::string bytes = read_file(path_);
  EXPECT_EQ(one.file_bytes, bytes.size());
  EXPECT_EQ(one.tensors.at("a"), crc32c(0, a.data(), a.bytes()));
  EXPECT_EQ(one.tensors.at("b"), crc32c(0, b.data(), b.bytes()));
  const checkpoint::SafetensorsSums four =
      checkpoint::write_safetensors(path_, tensors, {}, {.threads = 4});
  EXPECT_EQ(four.tensors, one.tensors);
  EXPECT_EQ(read_file(path_), bytes);
}

// The sum is taken of stretches of the mapping.
TEST_F(SafetensorsTest, AFilesOwnSumsAreThoseItWasWrittenWith) {
  Tensor large = test::random_tensor<float>({10'000'001}, 1);
  Tensor none(DType::kF32, {0});
  const checkpoint::SafetensorsSums sums =
      checkpoint::write_safetensors(path_, {named("large", large), named("none", none)});
  const checkpoint::SafetensorsFile file(path_);
  ThreadPool pool(2);
  for (const auto& [name, sum] : sums.tensors) EXPECT_EQ(file.sum_of(pool, file.at(name)), sum);
  EXPECT_EQ(file.header_sum(), sums.header);
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatDoesNotAddUp) {
  Tensor a(DType::kF32, {2});
  EXPECT_NE(message_of([&] {
              checkpoint::write_safetensors(path_, {named("a", a), named("a", a)});
            }).find("'a' is taken"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              checkpoint::write_safetensors(path_, {named("__metadata__", a)});
            }).find("is taken"),
            std::string::npos);
  NamedTensor negative = named("a", a);
  negative.shape = {-1};
  EXPECT_NE(message_of([&] {
              checkpoint::write_safetensors(path_, {negative});
            }).find("impossible shape [-1]"),
            std::string::npos);
  NamedTensor device = named("a", a);
  device.device = Device::kCuda;
  EXPECT_NE(message_of([&] { checkpoint::write_safetensors(path_, {device}); }).find("is on cuda"),
            std::string::npos);
}

TEST_F(SafetensorsTest, MalformedFilesAreRefusedWithTheReason) {
  const std::string a = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(open_message("{\"a\":{" + a + "}}", 8), "");
  expect_refused("{\"a\":{" + a + "}}", 7, "is cut short: its tensors need 8 bytes");
  expect_refused("{\"a\":{" + a + "}}", 9, "is too long: its tensors need 8 bytes");
  expect_refused("{\"a\":{" + a + "}", 8, "not a JSON object");
  expect_refused("[1]", 0, "not a JSON object");
  expect_refused("\xff\xfe", 0, "not a JSON object");
  expect_refused("{\"a\":{" + a + "},\"a\":{" + a + "}}", 8, "'a' is there twice");
  expect_refused("{\"a\":3}", 0, "has not exactly dtype");
  expect_refused("{\"a\":{" + a + ",\"x\":1}}", 8, "has not exactly dtype");
  expect_refused(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2,
                 "has dtype \"F8_E4M3\"; F64, F32");
  expect_refused(R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,2]}})", 2, "has dtype 7");
  expect_refused(R"({"a":{"dtype":"U8","shape":2,"data_offsets":[0,2]}})", 2, "not a list");
  expect_refused(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", 2, "not a size");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2.5],"data_offsets":[0,2]}})", 2, "not a size");
  expect_refused(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,2]}})", 2,
                 "not a size");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2,
                 "[begin, end] is wanted");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[-1,1]}})", 2,
                 "[begin, end] is wanted");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0]}})", 2,
                 "[begin, end] is wanted");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                 "has 4 bytes; its shape asks for 8");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                 "its shape asks for more than there are");
  // Overlap, hole, out of range.
  const std::string b = R"("b":{"dtype":"U8","shape":[4],"data_offsets":)";
  expect_refused("{\"a\":{" + a + "}," + b + "[4,8]}}", 8,
                 "begins at 4, the one before it ends at 8");
  expect_refused("{\"a\":{" + a + "}," + b + "[9,13]}}", 13,
                 "begins at 9, the one before it ends at 8");
  expect_refused("{" + b + "[1000,1004]}}", 4, "begins at 1000");
  expect_refused(R"({"__metadata__":[]})", 0, "metadata is not a JSON object");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "metadata 'a' is not a string");
}

TEST_F(SafetensorsTest, ShortFilesAndHugeHeadersAreRefused) {
  const auto message = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return message_of([&] { checkpoint::SafetensorsFile file(path_); });
  };
  EXPECT_NE(message("").find("has 0 bytes, too few"), std::string::npos);
  EXPECT_NE(message("1234567").find("has 7 bytes, too few"), std::string::npos);
  EXPECT_NE(message(std::string("\x09\0\0\0\0\0\0\0{}", 10)).find("is cut short"),
            std::string::npos);
  EXPECT_NE(message(std::string(8, '\xff')).find("at most 100000000"), std::string::npos);
  EXPECT_NE(message_of([] { checkpoint::SafetensorsFile file("/nowhere/x"); }).find("No such file"),
            std::string::npos);
}

TEST_F(SafetensorsTest, ReadingAsSomethingElseIsRefused) {
  Tensor a(DType::kF32, {2, 3});
  checkpoint::write_safetensors(path_, {named("a", a)});
  const checkpoint::SafetensorsFile file(path_);
  Tensor other(DType::kF32, {3, 2});
  Tensor half(DType::kBf16, {2, 3});
  EXPECT_NE(message_of([&] {
              file.read(named("a", other));
            }).find("'a' is f32 of shape [2, 3]; f32 of shape [3, 2] is wanted"),
            std::string::npos);
  EXPECT_NE(message_of([&] { file.read(named("a", half)); }).find("bf16 of shape [2, 3] is wanted"),
            std::string::npos);
  EXPECT_NE(message_of([&] { file.read(named("b", a)); }).find("has no tensor 'b' among its 1"),
            std::string::npos);
  EXPECT_NE(message_of([&] { file.view<float, 1>("a"); }).find("f32 of rank 1 was asked for"),
            std::string::npos);
  NamedTensor device = named("a", a);
  device.device = Device::kCuda;
  EXPECT_NE(message_of([&] { file.read(device); }).find("is on cuda"), std::string::npos);
  EXPECT_EQ(file.find("b"), nullptr);
  // Another writer may leave numbers unaligned; a copy still works.
  write_raw(path_,
            R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}} )",
            5);
  EXPECT_NE(message_of([&] {
              checkpoint::SafetensorsFile(path_).view<float, 1>("a");
            }).find("not aligned"),
            std::string::npos);
  Tensor one(DType::kF32, {1});
  checkpoint::SafetensorsFile(path_).read(named("a", one));
}

TEST_F(SafetensorsTest, ThePythonPackageReadsOursAndWeReadIts) {
  if (std::system("python3 -c 'import safetensors.numpy' 2> /dev/null") != 0) {
    GTEST_SKIP() << "python3 has no safetensors package with numpy";
  }
  Tensor w = test::random_tensor<float>({2, 3}, 1);
  Tensor h = test::random_tensor<bf16>({5}, 2);
  checkpoint::write_safetensors(path_, {named("h", h), named("w", w)}, {{"by", "turbogr"}});
  // Its own parser checks our header; its writer makes the file we read back.
  std::ofstream(folder_ / "copy.py")
      << "import sys, safetensors\n"
         "from safetensors.numpy import load_file, save_file\n"
         "data = dict(safetensors.deserialize(open(sys.argv[1], 'rb').read()))\n"
         "assert data['h']['shape'] == [5] and data['h']['dtype'] == 'BF16', data\n"
         "with safetensors.safe_open(sys.argv[1], 'np') as file:\n"
         "    assert file.metadata() == {'by': 'turbogr'}, file.metadata()\n"
         "    save_file({'w': file.get_tensor('w')}, sys.argv[2], {'by': 'python'})\n";
  const std::string theirs = folder_ / "theirs";
  const std::string command =
      "python3 '" + (folder_ / "copy.py").string() + "' '" + path_ + "' '" + theirs + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const checkpoint::SafetensorsFile file(theirs);
  EXPECT_EQ(file.metadata().at("by"), "python");
  Tensor w_back(DType::kF32, {2, 3});
  file.read(named("w", w_back));
  EXPECT_EQ(std::memcmp(w.data(), w_back.data(), w.bytes()), 0);
}

}  // namespace
}  // namespace turbogr
