#include "bench/lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"

namespace turbogr::bench {
namespace {

// Events per user of KuaiRand-27K, from the published logs (27,285 users).
struct Quantile {
  double share;
  double length;
};
constexpr Quantile kKuairand[] = {{0.00, 100},   {0.10, 2188},  {0.25, 4476},  {0.50, 8594},
                                  {0.75, 15227}, {0.90, 24587}, {0.99, 56230}, {1.00, 228000}};

double kuairand_length(double share) {
  const Quantile* above = kKuairand + 1;
  while (above->share < share) ++above;
  const Quantile* below = above - 1;
  const double t = (share - below->share) / (above->share - below->share);
  return std::exp(std::log(below->length) * (1 - t) + std::log(above->length) * t);
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::int64_t positive_number(const std::string& text, const std::string& whole) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  TGR_CHECK(result.ec == std::errc() && result.ptr == text.data() + text.size() && value > 0,
            "lengths '", whole, "': '", text, "' is not a positive whole number");
  return value;
}

}  // namespace

std::vector<std::int64_t> kuairand_table(std::int64_t users) {
  std::vector<std::int64_t> table;
  for (std::int64_t user = 0; user < users; ++user) {
    const double share = (static_cast<double>(user) + 0.5) / static_cast<double>(users);
    table.push_back(static_cast<std::int64_t>(kuairand_length(share)));
  }
  return table;
}

std::vector<std::int64_t> make_lengths(const std::string& text, std::int64_t tokens,
                                       std::int64_t max_length, std::uint64_t seed) {
  TGR_CHECK(tokens > 0, "tokens is ", tokens, "; give at least 1");
  TGR_CHECK(max_length > 0, "max-length is ", max_length, "; give at least 1");
  const std::vector<std::string> parts = parts_of(text);
  const bool kuairand = parts[0] == "kuairand" && parts.size() == 1;
  const bool uniform = parts[0] == "uniform" && parts.size() == 2;
  const bool lognormal = parts[0] == "lognormal" && parts.size() == 3;
  TGR_CHECK(kuairand || uniform || lognormal, "unknown lengths '", text,
            "'; use kuairand, uniform:L or lognormal:MEAN:MAX");
  std::int64_t cap = max_length;
  double mean = 0;
  if (uniform) {
    mean = static_cast<double>(positive_number(parts[1], text));
  } else if (lognormal) {
    mean = static_cast<double>(positive_number(parts[1], text));
    cap = std::min(cap, positive_number(parts[2], text));
  }
  PhiloxStream random(seed);
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = tokens; left > 0;) {
    const double drawn = kuairand  ? kuairand_length(random.uniform())
                         : uniform ? mean
                                   : mean * std::exp(random.normal() - 0.5);
    const auto length = std::max<std::int64_t>(1, static_cast<std::int64_t>(drawn));
    lengths.push_back(std::min({length, cap, left}));
    left -= lengths.back();
  }
  return lengths;
}

}  // namespace turbogr::bench
