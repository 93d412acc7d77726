// One thing `turbogr bench ops` measures: an operator in one direction and number format, its
// padded baseline, and a check of the answer that runs before any clock does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"

namespace turbogr::bench {

struct OpProblem {
  std::vector<std::int64_t> lengths;
  std::int64_t max_length = 2048;
  int heads = 8;
  std::int64_t head_dim = 64;
  std::string bias = "both";  // none, position, time or both
  std::uint64_t seed = 1;
  std::int64_t table_rows = 100'000;  // of item tables

  std::int64_t tokens() const;
  std::int64_t longest() const;
  std::int64_t padded_tokens() const;  // sequences times the longest
  std::int64_t width() const { return heads * head_dim; }
  std::vector<std::int64_t> offsets() const;
  OpProblem first_tokens(std::int64_t count) const;  // the same, cut after `count` tokens
};

struct OpCase {
  std::string op;
  std::string direction;  // forward, backward, both
  DType dtype = DType::kF32;
  double flops = 0;              // of the real tokens, causal; 0 for what is bound by memory
  double bytes = 0;              // moved at least, for what is bound by memory
  std::size_t peak_bytes = 0;    // all buffers of our path, inputs included
  std::size_t padded_bytes = 0;  // the same of the padded path
  std::function<void()> run;
  std::function<void()> run_padded;
  // Largest error relative to the largest value of an independent computation of the same thing.
  std::function<double()> error;
  double allowed_error = 0;
};

// The cases of a family share their check: it is made by the first that asks.
std::function<double()> computed_once(std::function<double()> error);

// The cases of one family share their buffers; they are made when asked for and freed before the
// next family.
struct OpFamily {
  std::string op;
  std::function<std::vector<OpCase>(const Context&, const OpProblem&, DType)> make;
};

std::vector<OpFamily> attention_families();
std::vector<OpFamily> dense_families();
std::vector<OpFamily> norm_families();
std::vector<OpFamily> softmax_families();
std::vector<OpFamily> sparse_families();
std::vector<OpFamily> all_families();

}  // namespace turbogr::bench
