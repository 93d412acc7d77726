// Bytes of an input, one after the other: a plain file, gzip or zstd (told by their first bytes,
// whatever the name says), or standard input. Never mapped, so the size does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace turbogr::data {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills from the front; less than asked only at the end, where it returns 0. Throws when the data
  // is cut short or damaged.
  virtual std::size_t read(std::span<char> out) = 0;
};

// Bytes that are here already.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(std::span<char> out) override;

 private:
  std::string_view bytes_;
};

struct Input {
  std::string name;                        // for messages
  std::unique_ptr<ByteSource> bytes;       // after decompression
  std::shared_ptr<std::int64_t> consumed;  // bytes of the file itself read so far
  std::int64_t size = -1;                  // of the file itself; -1 when nobody knows
};

// "-" is standard input.
Input open_input(const std::filesystem::path& path);

}  // namespace turbogr::data
