#include "turbogr/data/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace turbogr::data {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5u;

template <class Word>
Word load(const unsigned char* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

std::uint64_t mix(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

}  // namespace

void Checksum::consume(const unsigned char* block) {
  for (std::size_t i = 0; i < 4; ++i)
    lanes_[i] = mix(lanes_[i], load<std::uint64_t>(block + 8 * i));
}

void Checksum::update(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  total_ += bytes;
  if (num_pending_ > 0) {
    const std::size_t take = std::min(bytes, pending_.size() - num_pending_);
    if (take > 0) std::memcpy(pending_.data() + num_pending_, p, take);
    num_pending_ += take;
    p += take;
    bytes -= take;
    if (num_pending_ < pending_.size()) return;
    consume(pending_.data());
    num_pending_ = 0;
  }
  for (; bytes >= 32; bytes -= 32, p += 32) consume(p);
  if (bytes > 0) std::memcpy(pending_.data(), p, bytes);
  num_pending_ = bytes;
}

std::uint64_t Checksum::digest() const {
  std::uint64_t hash = kPrime5;
  if (total_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
  }
  hash += total_;
  const unsigned char* p = pending_.data();
  std::size_t left = num_pending_;
  for (; left >= 8; left -= 8, p += 8) {
    hash = std::rotl(hash ^ mix(0, load<std::uint64_t>(p)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ load<std::uint32_t>(p) * kPrime1, 23) * kPrime2 + kPrime3;
    left -= 4;
    p += 4;
  }
  for (; left > 0; --left, ++p) hash = std::rotl(hash ^ *p * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::string Checksum::hex() const { return fmt::format("{:016x}", digest()); }

std::string checksum_of(const void* data, std::size_t bytes) {
  Checksum checksum;
  checksum.update(data, bytes);
  return checksum.hex();
}

}  // namespace turbogr::data
