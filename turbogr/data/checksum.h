// XXH64 (the published algorithm, seed 0), fed piece by piece: the checksum of every file of a
// store. `xxhsum -H64 FILE` prints the same sixteen digits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace turbogr::data {

class Checksum {
 public:
  void update(const void* data, std::size_t bytes);
  std::uint64_t digest() const;
  std::string hex() const;  // sixteen lower-case digits

 private:
  void consume(const unsigned char* block);

  std::array<std::uint64_t, 4> lanes_ = {0x60EA27EEADC0B5D6u, 0xC2B2AE3D27D4EB4Fu, 0,
                                         0x61C8864E7A143579u};
  std::array<unsigned char, 32> pending_ = {};
  std::size_t num_pending_ = 0;
  std::uint64_t total_ = 0;
};

std::string checksum_of(const void* data, std::size_t bytes);

}  // namespace turbogr::data
