// An Arrow stream through prepare: columns of types, lengths and offsets that the first bytes
// choose, their buffers as long as a producer's must be and filled with the rest. What the
// interface cannot check (how long a buffer is) is right; everything in the buffers is made up. The
// store must not depend on the threads.
#include "tests/support/arrow.h"

#include <algorithm>
#include <map>

#include "tests/fuzz/support.h"
#include "turbogr/data/prepare.h"

namespace turbogr::data {
namespace {

using fuzz::expect;
using test::ArrowValues;

// Bytes one after the other, and again from the start.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t next() { return data_[at_++ % size_]; }
  std::size_t below(std::size_t bound) { return next() % bound; }
  std::vector<std::byte> many(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = std::byte{next()};
    return bytes;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

constexpr const char* kFormats[] = {"l", "l", "i", "u",    "U",    "vu",      "b",   "g",
                                    "f", "e", "C", "L",    "tsn:", "tsm:UTC", "tdD", "tdm",
                                    "n", "s", "z", "tss:", "d:9",  "+l",      "+L",  "+w:2"};

std::size_t width_of(std::string_view format) {
  static const std::map<char, std::size_t> widths = {{'c', 1}, {'C', 1}, {'s', 2}, {'S', 2},
                                                     {'e', 2}, {'i', 4}, {'I', 4}, {'f', 4}};
  if (format == "tdD") return 4;
  const auto found = format.size() == 1 ? widths.find(format[0]) : widths.end();
  return found != widths.end() ? found->second : 8;
}

// Offsets of lists or strings: mostly rising, at times not; the last says how much there is.
template <class Offset>
std::vector<std::byte> offsets_of(Bytes& bytes, std::size_t count, std::size_t& end) {
  std::vector<Offset> offsets = {0};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t step = bytes.next();
    offsets.push_back(step > 250 ? static_cast<Offset>(static_cast<std::int8_t>(step) * 100)
                                 : offsets.back() + static_cast<Offset>(step % 8));
  }
  end = static_cast<std::size_t>(std::clamp<Offset>(offsets.back(), 0, 1 << 16));
  offsets.back() = static_cast<Offset>(end);
  return test::bytes_of(offsets);
}

ArrowValues column_of(Bytes& bytes, std::string name, std::size_t length, bool may_nest) {
  ArrowValues column = {.name = std::move(name), .format = kFormats[bytes.below(24)]};
  column.length = static_cast<std::int64_t>(length);
  column.offset = static_cast<std::int64_t>(bytes.below(4));
  const std::size_t count = length + static_cast<std::size_t>(column.offset);
  if (!may_nest && column.format[0] == '+') column.format = "l";
  const std::string& format = column.format;
  column.buffers.push_back(bytes.below(3) == 0 ? bytes.many(count / 8 + 1)
                                               : std::vector<std::byte>());
  std::size_t end = 0;
  if (format == "+w:2") {
    column.children = {column_of(bytes, "item", 2 * count, false)};
  } else if (format == "+l" || format == "+L") {
    column.buffers.push_back(format == "+l" ? offsets_of<std::int32_t>(bytes, count, end)
                                            : offsets_of<std::int64_t>(bytes, count, end));
    column.children = {column_of(bytes, "item", end, false)};
  } else if (format == "u" || format == "U" || format == "z") {
    column.buffers.push_back(format == "U" ? offsets_of<std::int64_t>(bytes, count, end)
                                           : offsets_of<std::int32_t>(bytes, count, end));
    column.buffers.push_back(bytes.many(end + 1));
  } else if (format == "vu") {
    column.buffers.push_back(bytes.many(16 * count + 16));
    // Lengths that a view may have, most of the time.
    for (std::size_t i = 0; i < count; ++i) {
      if (bytes.below(8) == 0) continue;
      const auto size = static_cast<std::int32_t>(bytes.below(20));
      const std::int32_t place[2] = {static_cast<std::int32_t>(bytes.below(2)),
                                     static_cast<std::int32_t>(bytes.below(40))};
      std::memcpy(&column.buffers[1][16 * i], &size, 4);
      if (size > 12) std::memcpy(&column.buffers[1][16 * i + 8], place, sizeof place);
    }
    column.buffers.push_back(bytes.many(32));
    column.buffers.push_back(test::bytes_of(std::vector<std::int64_t>{32}));
  } else if (format != "n") {
    column.buffers.push_back(bytes.many(width_of(format) * count + 8));
    // Small numbers, most of the time: ids and times in range.
    if (bytes.below(4) != 0) {
      for (std::size_t i = 0; i < column.buffers[1].size(); ++i) {
        if (i % width_of(format) > 1) column.buffers[1][i] = std::byte{0};
      }
    }
  }
  const bool integer =
      format.size() == 1 && std::string_view("csilCSIL").find(format[0]) < std::string_view::npos;
  if (may_nest && integer && bytes.below(6) == 0) {
    column.dictionary = {column_of(bytes, "", 1 + bytes.below(200), false)};
  }
  return column;
}

std::map<std::string, std::string> store_of(const std::vector<std::vector<ArrowValues>>& batches,
                                            const PrepareOptions& given, int threads) {
  static const fuzz::Folder folder;
  folder.clear();
  test::ArrowSource source(batches);
  PrepareOptions options = given;
  options.threads = threads;
  options.streams = {{"stream", source.stream()}};
  options.out = folder.path() / "store";
  std::map<std::string, std::string> files;
  try {
    const PrepareReport report = prepare(options);
    expect(report.events + report.bad_rows + report.repeated + report.filtered <= report.rows,
           "no event comes from nowhere");
    for (const auto& entry : std::filesystem::directory_iterator(options.out)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
    }
  } catch (const Error& error) {
    files["error"];  // which of several errors it is may depend on the threads
    expect(*error.what() != 0, "an error says something");
  }
  expect(source.lent() == 0, "what was lent is given back");
  return files;
}

}  // namespace
}  // namespace turbogr::data

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turbogr::data;
  if (size < 8) return 0;
  Bytes bytes(data, size);
  PrepareOptions options;
  options.bad_rows = {.skip = bytes.below(2) == 0};
  options.ids = bytes.below(4) == 0 ? "string" : "auto";
  options.memory_bytes = bytes.below(2) == 0 ? 1 << 14 : 64 << 20;
  const std::size_t num_columns = 2 + bytes.below(4);
  const std::size_t num_batches = 1 + bytes.below(2);
  constexpr const char* kNames[] = {"user_id", "item_id", "timestamp", "is_click", "rating"};
  std::vector<std::vector<ArrowValues>> batches;
  for (std::size_t batch = 0; batch < num_batches; ++batch) {
    const std::size_t length = bytes.below(40);
    std::vector<ArrowValues> columns;
    for (std::size_t i = 0; i < num_columns; ++i) {
      columns.push_back(column_of(bytes, kNames[i], length, true));
    }
    // Batches of one stream have the types of the first: another one is the producer's bug.
    const auto same = [](const ArrowValues& a, const ArrowValues& b) {
      return a.format == b.format && a.dictionary.size() == b.dictionary.size() &&
             (a.children.empty() || a.children[0].format == b.children[0].format) &&
             (a.dictionary.empty() || a.dictionary[0].format == b.dictionary[0].format);
    };
    if (batch == 0 || std::equal(columns.begin(), columns.end(), batches[0].begin(), same)) {
      batches.push_back(std::move(columns));
    }
  }
  expect(store_of(batches, options, 1) == store_of(batches, options, 3),
         "whether there is a store, and which, does not depend on the threads");
  return 0;
}
