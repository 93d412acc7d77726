#include "turbogr/core/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace turbogr {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78u;

// tables[k][b]: byte b followed by k zero bytes. Eight bytes a turn instead of one.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) * kReversedPolynomial);
    tables[0][byte] = crc;
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    for (std::size_t k = 1; k < 8; ++k) {
      const std::uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 0xffu];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::uint32_t crc, const void* data,
                                                             std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint64_t state = ~crc;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint64_t word;
    std::memcpy(&word, next, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (; bytes > 0; --bytes, ++next) narrow = _mm_crc32_u8(narrow, *next);
  return ~narrow;
}
#endif

// Product of two polynomials modulo CRC-32C's; bit 31 is the coefficient of 1, bit 30 of x.
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1u) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1u) * kReversedPolynomial);
  }
  return product;
}

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint32_t state = ~crc;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    state ^= static_cast<std::uint32_t>(next[0]) | static_cast<std::uint32_t>(next[1]) << 8 |
             static_cast<std::uint32_t>(next[2]) << 16 | static_cast<std::uint32_t>(next[3]) << 24;
    state = kTables[7][state & 0xffu] ^ kTables[6][(state >> 8) & 0xffu] ^
            kTables[5][(state >> 16) & 0xffu] ^ kTables[4][state >> 24] ^ kTables[3][next[4]] ^
            kTables[2][next[5]] ^ kTables[1][next[6]] ^ kTables[0][next[7]];
  }
  for (; bytes > 0; --bytes, ++next) state = (state >> 8) ^ kTables[0][(state ^ *next) & 0xffu];
  return ~state;
}

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t bytes) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_sse42(crc, data, bytes);
#endif
  return crc32c_portable(crc, data, bytes);
}

// A byte more multiplies what came before by x^8.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  std::uint32_t factor = 0x80000000u;  // 1
  std::uint32_t square = 0x00800000u;  // x^8
  for (std::uint64_t bytes = second_bytes; bytes > 0; bytes >>= 1) {
    if ((bytes & 1u) != 0) factor = multiply(factor, square);
    square = multiply(square, square);
  }
  return multiply(factor, first) ^ second;
}

std::uint32_t crc32c(ThreadPool& pool, const void* data, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  const auto* begin = static_cast<const std::byte*>(data);
  std::vector<std::uint32_t> sums((bytes + kPiece - 1) / kPiece);
  const auto length_of = [&](std::size_t piece) {
    return std::min(kPiece, bytes - piece * kPiece);
  };
  parallel_for(pool, std::ssize(sums), [&](std::int64_t index, int) {
    const auto piece = static_cast<std::size_t>(index);
    sums[piece] = crc32c(0, begin + piece * kPiece, length_of(piece));
  });
  std::uint32_t sum = 0;
  for (std::size_t piece = 0; piece < sums.size(); ++piece) {
    sum = crc32c_joined(sum, sums[piece], length_of(piece));
  }
  return sum;
}

}  // namespace turbogr
