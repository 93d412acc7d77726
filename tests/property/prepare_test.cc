// Laws of prepare over seeded random logs: how a log is cut, packed and shuffled does not show.
#include "turbogr/data/prepare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/compress.h"
#include "tests/support/temporary_folder.h"
#include "turbogr/core/philox.h"
#include "turbogr/data/store.h"

namespace turbogr::data {
namespace {

using test::TemporaryFolder;
using test::write_file;

constexpr const char* kHeader = "user_id,item_id,timestamp,is_click\n";

// Times are all different, so the order of a history is the log's and not its lines'.
std::vector<std::string> random_lines(std::uint64_t seed, int count) {
  PhiloxStream random(seed);
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    lines.push_back(fmt::format("{},{},{},{}\n", random.below(40), random.below(5000),
                                1'000'000 + i * 7, random.below(2)));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines, std::size_t begin, std::size_t end) {
  std::string text = kHeader;
  for (std::size_t i = begin; i < end; ++i) text += lines[i];
  return text;
}

// The manifest holds a checksum of every column.
std::string manifest_of(const TemporaryFolder& folder, std::vector<std::filesystem::path> inputs,
                        std::size_t memory = 1 << 24) {
  prepare({.inputs = std::move(inputs),
           .out = folder / "s",
           .overwrite = true,
           .memory_bytes = memory});
  const Store store(folder / "s");
  store.verify();
  return store.manifest().to_json();
}

TEST(PrepareLaws, CuttingPackingAndMemoryDoNotShow) {
  TemporaryFolder folder;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<std::string> lines = random_lines(seed, 700);
    const std::string whole =
        manifest_of(folder, {write_file(folder / "a.csv", joined(lines, 0, lines.size()))});
    PhiloxStream random(seed, 1);
    const std::size_t cut = random.below(lines.size());
    const auto first = write_file(folder / "1.gz", test::gzip(joined(lines, 0, cut)));
    const auto second = write_file(folder / "2.zst", test::zstd(joined(lines, cut, lines.size())));
    EXPECT_EQ(manifest_of(folder, {first, second}), whole);
    EXPECT_EQ(manifest_of(folder, {first, second}, 4000 + random.below(40000)), whole);
  }
}

TEST(PrepareLaws, TheOrderOfLinesWithDifferentTimesDoesNotShow) {
  TemporaryFolder folder;
  for (std::uint64_t seed = 11; seed <= 13; ++seed) {
    std::vector<std::string> lines = random_lines(seed, 500);
    const std::string sorted =
        manifest_of(folder, {write_file(folder / "a.csv", joined(lines, 0, lines.size()))});
    PhiloxStream random(seed, 2);
    for (std::size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[random.below(i)]);
    EXPECT_EQ(
        manifest_of(folder, {write_file(folder / "b.csv", joined(lines, 0, lines.size()))}, 20000),
        sorted);
  }
}

}  // namespace
}  // namespace turbogr::data
