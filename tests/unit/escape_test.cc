#include "turbogr/core/escape.h"

#include <gtest/gtest.h>

#include "turbogr/core/nearest_name.h"

namespace turbogr {
namespace {

TEST(Escaped, LeavesTextAndShowsWhatATerminalWouldObey) {
  EXPECT_EQ(escaped("Am\xc3\xa9lie \xe2\x82\xac \xf0\x9f\x8e\xac"),
            "Am\xc3\xa9lie \xe2\x82\xac \xf0\x9f\x8e\xac");
  EXPECT_EQ(escaped("a\nb\rc\td\\e"), "a\\nb\\rc\\td\\\\e");
  EXPECT_EQ(escaped("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(escaped(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\xc2\\x9b");  // a control character of two bytes
  EXPECT_EQ(escaped("\x9b"
                    "2J \xe9"),
            "\\x9b"
            "2J \\xe9");                         // no UTF-8
  EXPECT_EQ(escaped("\xe2\x82"), "\\xe2\\x82");  // cut short
  EXPECT_EQ(escaped("\xed\xa0\x80\xc0\xaf"), "\\xed\\xa0\\x80\\xc0\\xaf");
  EXPECT_EQ(escaped("one\ntwo \\ \x1b", "\n\\"), "one\ntwo \\ \\x1b");
}

TEST(NearestName, IsTheOneMeantOrNone) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(nearest_name("evla", {"data", "eval", "export"}), "eval");
  EXPECT_EQ(nearest_name("--chekpoint", {"--store", "--checkpoint"}), "--checkpoint");
  EXPECT_EQ(nearest_name("frobnicate", {"data", "eval", "export"}), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace turbogr
