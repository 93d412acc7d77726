#include "turbogr/data/item_titles.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/messages.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/data/prepare.h"

namespace turbogr::data {
namespace {

using test::message_of;
using test::write_file;

class Titles : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;

  Store store_with(const std::string& table) {
    PrepareOptions options{
        .inputs = {write_file(folder_ / "log.csv", "user,item,time\n1,10,1\n1,20,2\n1,30,3\n")},
        .out = folder_ / "s",
        .overwrite = true};
    if (!table.empty()) options.item_tables = {write_file(folder_ / "table", table)};
    prepare(options);
    return Store(folder_ / "s");
  }
  // Titles of the items 10, 20 and 30, with a bar between.
  std::string titles_of(const std::string& table) {
    const Store store = store_with(table);
    const ItemTitles titles = ItemTitles::of(store);
    std::string text;
    for (int item = 0; item < 3; ++item) {
      if (item > 0) text += '|';
      text += titles.text(item);
    }
    return text;
  }
};

TEST_F(Titles, ComeFromAHeaderOrFromMovieLensOwnColumns) {
  EXPECT_EQ(titles_of("movieId,title,genres\n20,\"Heat, II\",Crime\n99,Gone,x\n10,Up,y\n"),
            "Up|Heat, II|");
  EXPECT_EQ(titles_of("genre\tName\titem_id\nx\tUp\t10\n"), "Up||");
  EXPECT_EQ(titles_of("10::Up (2009)::Animation\n30::Heat: Part 2::Crime\n"),
            "Up (2009)||Heat: Part 2");
  EXPECT_EQ(titles_of("20|Heat \"95\"|01-Jan-1995||http://x\n"), "|Heat \"95\"|");
}

TEST_F(Titles, MayBeginWithAQuoteWhereTheDelimiterKnowsNone) {
  for (const char* delimiter : {"::", "|", "\t"}) {
    std::string table;
    for (const char* row : {"item/title/tag", "10/\"Up/x", "20/\"Heat\" II/y", "30/It/z"}) {
      for (const char* at = row; *at != 0; ++at)
        table += *at == '/' ? delimiter : std::string(1, *at);
      table += '\n';
    }
    EXPECT_EQ(titles_of(table), "\"Up|\"Heat\" II|It") << delimiter;
  }
}

TEST_F(Titles, AreEmptyWhereThereAreNone) {
  EXPECT_EQ(titles_of(""), "||");
  EXPECT_EQ(titles_of("video_id,tag\n10,1\n"), "||");
  EXPECT_EQ(titles_of("10\n"), "||");
  EXPECT_EQ(titles_of("title,title\n10\n20,x\n"), "|x|");
}

TEST_F(Titles, AreShownAsUtf8WithoutControlCharacters) {
  const std::string accented =
      "Am\xc3\xa9"
      "lie";
  EXPECT_EQ(titles_of("item,title\n10," + accented +
                      "\n20,Am\xe9"
                      "lie\n"),
            accented + "|" + accented + "|");
  EXPECT_EQ(titles_of("item,title\n30,a\x1b[2J b\xc2\x9b c\x9b\n"), "||a?[2J b? c?");
}

TEST_F(Titles, AFileWithoutThemIsRefused) {
  const Store store = store_with("");
  const auto message = [&](const std::string& text) {
    return message_of([&] { ItemTitles::read(write_file(folder_ / "given", text), store); });
  };
  EXPECT_EQ(message("item,title\n10,Up\n"), "");
  EXPECT_NE(message("item,tag\n10,1\n").find("has no column of titles"), std::string::npos);
  EXPECT_NE(message("").find("has no column of titles"), std::string::npos);
  EXPECT_NE(message("item,title\n99,Up\n").find("names none of the 3 items"), std::string::npos);
  EXPECT_NE(message_of([&] { ItemTitles::read("/nowhere", store); }).find("check the path"),
            std::string::npos);
}

}  // namespace
}  // namespace turbogr::data
