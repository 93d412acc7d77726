// The command `time` of attention_bench.cu and fuxi_bench.cu: options, lengths, the clock.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "bench/attention_problem.cuh"

namespace turbogr::bench {

inline std::vector<int> read_lengths(const std::string& source) {
  if (source.rfind("uniform:", 0) == 0) {
    int length = 0;
    int count = 0;
    TGR_CHECK(std::sscanf(source.c_str(), "uniform:%d:%d", &length, &count) == 2, "lengths '",
              source, "', wanted uniform:LENGTH:COUNT");
    return std::vector<int>(static_cast<std::size_t>(count), length);
  }
  if (source.rfind("random:", 0) == 0) {
    int low = 0;
    int high = 0;
    int count = 0;
    TGR_CHECK(std::sscanf(source.c_str(), "random:%d:%d:%d", &low, &high, &count) == 3, "lengths '",
              source, "', wanted random:LOW:HIGH:COUNT");
    std::mt19937_64 random(5);
    std::uniform_int_distribution<int> draw(low, high);
    std::vector<int> lengths(static_cast<std::size_t>(count));
    for (int& n : lengths) n = draw(random);
    return lengths;
  }
  std::ifstream file(source);
  TGR_CHECK(file.good(), "cannot read lengths from ", source);
  std::vector<int> lengths;
  for (int n; file >> n;) lengths.push_back(n);
  return lengths;
}

struct AttentionTimeOptions {
  AttentionProblemCase c;
  std::string tables;  // none, position, time or both
  std::string pass = "both";
  std::string json;
  bool table_gradients = true;
};

// tables_key: what the option is called that says which tables there are.
inline AttentionTimeOptions read_time_options(const std::vector<std::string>& options,
                                              const std::string& tables_key,
                                              const std::string& tables) {
  AttentionTimeOptions to;
  to.tables = tables;
  for (std::size_t i = 0; i + 1 < options.size(); i += 2) {
    const std::string& key = options[i];
    const std::string& value = options[i + 1];
    if (key == "--lengths") {
      to.c.lengths = read_lengths(value);
      if (to.c.name.empty()) to.c.name = value.substr(value.find_last_of('/') + 1);
    } else if (key == "--heads") {
      to.c.heads = std::stoi(value);
    } else if (key == "--head-dim") {
      to.c.query_width = to.c.value_width = std::stoi(value);
    } else if (key == tables_key) {
      to.tables = value;
    } else if (key == "--pass") {
      TGR_CHECK(value == "both" || value == "forward", "pass '", value,
                "', wanted both or forward");
      to.pass = value;
    } else if (key == "--name") {
      to.c.name = value;
    } else if (key == "--table-gradients") {
      to.table_gradients = value == "yes";
    } else if (key == "--deterministic") {
      to.c.deterministic = value == "yes";
    } else if (key == "--pair-room") {
      to.c.pair_room = std::stoi(value);
    } else if (key == "--times") {
      TGR_CHECK(value == "sorted" || value == "unsorted", "times '", value,
                "', wanted sorted or unsorted");
      if (value == "unsorted") to.c.times = AttentionProblemCase::Times::kUnsorted;
    } else if (key == "--json") {
      to.json = value;
    } else {
      TGR_CHECK(false, "unknown option ", key);
    }
  }
  to.c.position = to.tables == "position" || to.tables == "both";
  to.c.time = to.tables == "time" || to.tables == "both";
  return to;
}

// Pairs of a query and a key it sees.
inline double causal_pairs(const std::vector<int>& lengths) {
  double pairs = 0;
  for (const int n : lengths) pairs += 0.5 * n * (n + 1.0);
  return pairs;
}

template <class Function>
double median_ms(Function&& call, int repeats) {
  cudaEvent_t begin;
  cudaEvent_t end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < 3; ++i) call();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    call();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    times.push_back(ms);
  }
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  check(cudaEventDestroy(end), "cudaEventDestroy");
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return static_cast<double>(times[static_cast<std::size_t>(repeats) / 2]);
}

// Adds a line to `path`; no path: none.
template <class... Values>
void append_json(const std::string& path, const char* format, const Values&... values) {
  if (path.empty()) return;
  std::FILE* file = std::fopen(path.c_str(), "a");
  TGR_CHECK(file != nullptr, "cannot write ", path);
  std::fprintf(file, format, values...);
  std::fclose(file);
}

// `test` and `time` as the words of a program; 2 where neither is asked for or something is wrong.
template <class Test, class Time>
int attention_program(int argc, char** argv, const char* usage, Test&& test, Time&& time) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (!words.empty() && words[0] == "test") {
      return test(std::vector<std::string>(words.begin() + 1, words.end()));
    }
    if (!words.empty() && words[0] == "time") {
      return time(std::vector<std::string>(words.begin() + 1, words.end()));
    }
    std::fprintf(stderr, "usage: %s\n", usage);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  }
  return 2;
}

}  // namespace turbogr::bench
