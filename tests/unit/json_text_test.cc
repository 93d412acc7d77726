#include "turbogr/core/json_text.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/checkpoint/checkpoint.h"
#include "turbogr/checkpoint/safetensors.h"
#include "turbogr/data/batching.h"
#include "turbogr/data/manifest.h"
#include "turbogr/run/lengths.h"
#include "turbogr/run/metrics.h"
#include "turbogr/run/timeline.h"

namespace turbogr {
namespace {

using nlohmann::json;
using test::message_of;
using test::write_file;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonText, ReadsWhatIsNotTooDeep) {
  EXPECT_EQ(parse_json("{\"a\": [1]}"), json({{"a", {1}}}));
  EXPECT_TRUE(parse_json("{").is_discarded());
  EXPECT_TRUE(parse_json(nested(100)).is_array());
  EXPECT_TRUE(parse_json(nested(101)).is_discarded());
  // One after the other, and in text, they are not deep.
  std::string flat = "[\"\\\"" + std::string(300, '[') + "\"";
  for (int i = 0; i < 300; ++i) flat += ",{}";
  EXPECT_EQ(parse_json(flat + "]").size(), 301u);
}

TEST(JsonText, ReadersRefuseWhatWouldUseUpTheStack) {
  const std::string deep = nested(1'000'000);
  const test::TemporaryFolder folder;
  EXPECT_NE(message_of([&] {
              data::Manifest::from_json(
                  "{\"format\": \"turbogr sequence store\", \"x\": " + deep + "}", "manifest.json");
            }).find("is not JSON"),
            std::string::npos);
  EXPECT_NE(message_of([&] { data::LoaderState::from_json(deep); }).find("cannot be read"),
            std::string::npos);
  const std::string file = (folder / "file").string();
  write_file(file, "{\"count\": " + deep + "}");
  EXPECT_NE(message_of([&] { run::read_lengths(file); }).find("not a length histogram"),
            std::string::npos);
  write_file(file, "{\"traceEvents\": [{\"ph\": " + deep + "}]}");
  EXPECT_NE(message_of([&] { run::read_timeline(file); }).find("not a trace"), std::string::npos);
  write_file(file, "{\"step\": " + deep + "}\n{\"step\": 9999999999999999999}\n{\"step\": 1}\n");
  std::int64_t skipped = 0;
  EXPECT_EQ(run::read_json_lines(file, &skipped).size(), 1u);
  EXPECT_EQ(skipped, 2);
  const std::string header = "{\"x\": " + deep + "}";
  const std::uint64_t length = header.size();
  write_file(file, std::string(reinterpret_cast<const char*>(&length), sizeof length) + header);
  EXPECT_NE(message_of([&] { checkpoint::SafetensorsFile{file}; }).find("too deep"),
            std::string::npos);
  write_file(folder / "manifest.json",
             "{\"format\": \"turbogr checkpoint\", \"version\": 1, \"x\": " + deep + "}");
  EXPECT_NE(message_of([&] { checkpoint::Checkpoint{folder.path().string()}; }).find("damaged"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr
