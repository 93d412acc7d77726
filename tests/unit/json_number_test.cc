#include "turbogr/core/json_number.h"

#include <gtest/gtest.h>

namespace turbogr {
namespace {

using nlohmann::json;

TEST(JsonNumber, TakesWholeNumbersThatFit) {
  EXPECT_EQ(whole_number<std::int64_t>(json::parse("-9223372036854775808")), INT64_MIN);
  EXPECT_EQ(whole_number<std::uint64_t>(json::parse("18446744073709551615")), UINT64_MAX);
  EXPECT_EQ(whole_number<int>(json::parse("2147483647")), INT32_MAX);
}

TEST(JsonNumber, RefusesWhatANumberWouldBeBentInto) {
  for (const char* text : {"1e30", "1.5", "2.0", "-1e300", "18446744073709551615",
                           "12222222222222222222222222", "\"7\"", "null", "[1]"}) {
    EXPECT_THROW(whole_number<std::int64_t>(json::parse(text)), json::exception) << text;
  }
  EXPECT_FALSE(is_whole_number<std::int64_t>(json::parse("9223372036854775808")));
  EXPECT_TRUE(is_whole_number<std::int64_t>(json::parse("-9223372036854775808")));
  EXPECT_THROW(whole_number<std::uint64_t>(json::parse("-1")), json::exception);
  EXPECT_THROW(whole_number<std::uint32_t>(json::parse("4294967296")), json::exception);
}

}  // namespace
}  // namespace turbogr
