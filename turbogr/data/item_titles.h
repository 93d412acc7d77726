// What people call the items, from a table about them: MovieLens' movies.dat, movies.csv and
// u.item, or any delimited file with a header and a column of titles.
//
//   ItemTitles titles = ItemTitles::of(store);             // of the tables prepared with it
//   fmt::print("{}", titles.text(item));                   // empty when there is none
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>

#include "turbogr/data/store.h"

namespace turbogr::data {

class ItemTitles {
 public:
  ItemTitles() = default;
  // From the first of the store's item tables that has titles; empty when none does.
  static ItemTitles of(const Store& store);
  // From a file of the user's; throws when no column of titles is found in it.
  static ItemTitles read(const std::filesystem::path& path, const Store& store);

  // What of a table that goes with the store is of no use to titles, for people; empty when all is.
  static std::string unused_of(const std::filesystem::path& table, const Store& store);

  bool empty() const { return titles_.empty(); }
  std::int64_t size() const { return static_cast<std::int64_t>(titles_.size()); }
  // UTF-8 on one line, without control characters.
  std::string_view text(std::int64_t item) const;

 private:
  bool add_table(const std::filesystem::path& path, const Store& store);  // false: it has no titles

  std::unordered_map<std::int64_t, std::string> titles_;
};

}  // namespace turbogr::data
