// Whether the results in an AttentionProblem are right: no further from the reference in double
// than twice what a plain bf16 implementation is, and nothing written outside.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/attention_problem.cuh"

namespace turbogr::bench {

// Pairs of a token and a head that are looked at: number s is pair s * step.
struct ReferenceSamples {
  std::int64_t count;
  std::int64_t step;
  const int* token_sequence;  // [N]
};

// What a reference writes of them; tables where all pairs are looked at.
struct References {
  DeviceArray<double> out, dq, dk, dv, dposition, dtime;

  template <class Params>
  References(const AttentionProblem<Params>& problem, std::int64_t samples)
      : out(static_cast<std::size_t>(samples * problem.maps * problem.c.value_width)),
        dq(static_cast<std::size_t>(samples * problem.c.query_width)),
        dk(dq.size()),
        dv(static_cast<std::size_t>(samples * problem.c.value_width)),
        dposition(problem.position.size()),
        dtime(problem.time.size()) {
    dposition.fill_bytes(0);
    dtime.fill_bytes(0);
  }
};

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(sum / norm) : std::sqrt(sum);
}

template <class Params>
bool nothing_poisoned(const AttentionProblem<Params>& problem, bool backward) {
  const DeviceArray<unsigned long long> bad(2);
  bad.fill_bytes(0);
  count_poison(problem.out, problem.tokens, problem.maps * problem.v_width, bad);
  if (backward) {
    count_poison(problem.dq, problem.tokens, problem.q_width, bad);
    count_poison(problem.dk, problem.tokens, problem.q_width, bad);
    count_poison(problem.dv, problem.tokens, problem.v_width, bad);
  }
  const auto counts = bad.to_host();
  if (counts[0] == 0 && counts[1] == 0) return true;
  std::printf("  %s: %llu results not finite, %llu writes outside\n", problem.c.name.c_str(),
              counts[0], counts[1]);
  return false;
}

// Compares what `problem` holds of the samples with two references and prints a line.
class AttentionJudge {
 public:
  AttentionJudge(const std::string& name, const ReferenceSamples& samples, int heads)
      : samples_(samples), heads_(heads) {
    std::printf("  %-28s", name.c_str());
  }
  ~AttentionJudge() { std::printf("\n"); }
  AttentionJudge(const AttentionJudge&) = delete;
  AttentionJudge& operator=(const AttentionJudge&) = delete;

  // Rows of all heads, `width` columns each.
  void rows(const char* what, const DeviceArray<__nv_bfloat16>& got, std::int64_t stride, int width,
            const DeviceArray<double>& exact, const DeviceArray<double>& plain) {
    const auto host = got.to_host();
    std::vector<double> taken;
    for (std::int64_t s = 0; s < samples_.count; ++s) {
      const std::int64_t pair = s * samples_.step;
      for (int c = 0; c < width; ++c) {
        const auto at =
            static_cast<std::size_t>(pair / heads_ * stride + pair % heads_ * width + c);
        taken.push_back(static_cast<double>(__bfloat162float(host[at])));
      }
    }
    judge(what, taken, exact, plain, 1);
  }
  // A table's gradient, which was added to `start`. `slack`: how much worse than a plain
  // implementation its sums may be.
  void table(const char* what, const DeviceArray<float>& got, const std::vector<float>& start,
             const DeviceArray<double>& exact, const DeviceArray<double>& plain, double slack) {
    if (got.size() == 0 || samples_.step != 1) return;
    const auto host = got.to_host();
    std::vector<double> taken;
    taken.reserve(host.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
      taken.push_back(static_cast<double>(host[i]) - static_cast<double>(start[i]));
    }
    judge(what, taken, exact, plain, slack);
  }
  bool good() const { return good_; }

 private:
  void judge(const char* what, const std::vector<double>& got, const DeviceArray<double>& exact,
             const DeviceArray<double>& plain, double slack) {
    const auto reference = exact.to_host();
    const double error = distance(got, reference);
    const double yardstick = slack * distance(plain.to_host(), reference);
    const bool fits = error <= 2 * yardstick + 1e-6;
    good_ &= fits;
    std::printf(" %s %.2e (plain %.2e)%s", what, error, yardstick, fits ? "" : " WRONG");
  }

  ReferenceSamples samples_;
  int heads_;
  bool good_ = true;
};

// Looks at `most` pairs or fewer, evenly spaced. `run(plain, samples, to)` runs a reference;
// `table_slack` is that of AttentionJudge::table.
template <class Params, class Run>
bool verify(const AttentionProblem<Params>& problem, bool backward, std::int64_t most,
            double table_slack, Run&& run) {
  const bool clean = nothing_poisoned(problem, backward);
  if (problem.tokens == 0) return clean;
  std::vector<int> sequence;
  for (std::size_t b = 0; b < problem.c.lengths.size(); ++b) {
    sequence.insert(sequence.end(), static_cast<std::size_t>(problem.c.lengths[b]),
                    static_cast<int>(b));
  }
  const DeviceArray<int> token_sequence(sequence);
  const Params& p = problem.params;
  const std::int64_t pairs = problem.tokens * p.heads;
  const std::int64_t step = std::max<std::int64_t>(1, (pairs + most - 1) / most);
  const ReferenceSamples samples = {(pairs + step - 1) / step, step, token_sequence.data()};
  const References exact(problem, samples.count);
  const References plain(problem, samples.count);
  run(false, samples, exact);
  run(true, samples, plain);
  check(cudaDeviceSynchronize(), "reference");

  AttentionJudge judge(problem.c.name, samples, p.heads);
  judge.rows("out", problem.out, p.out_stride, problem.maps * p.value_width, exact.out, plain.out);
  if (backward) {
    judge.rows("dq", problem.dq, p.dq_stride, p.query_width, exact.dq, plain.dq);
    judge.rows("dk", problem.dk, p.dk_stride, p.query_width, exact.dk, plain.dk);
    judge.rows("dv", problem.dv, p.dv_stride, p.value_width, exact.dv, plain.dv);
    if (p.dposition != nullptr) {
      judge.table("dposition", problem.dposition, problem.position_start, exact.dposition,
                  plain.dposition, table_slack);
    }
    if (p.dtime != nullptr) {
      judge.table("dtime", problem.dtime, problem.time_start, exact.dtime, plain.dtime,
                  table_slack);
    }
  }
  return clean && judge.good();
}

}  // namespace turbogr::bench
