// A batch with everything that an attention call of either kind needs on the device, for
// attention_bench.cu and fuxi_bench.cu.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bench/device_array.cuh"

namespace turbogr::bench {

struct AttentionProblemCase {
  enum class Times { kSorted, kMilliseconds, kUnsorted, kWide };
  std::string name;
  std::vector<int> lengths;
  int heads = 1;
  int query_width = 64;
  int value_width = 64;
  bool position = false;
  bool time = false;
  double alpha = 1;
  bool deterministic = false;
  int pair_room = 0;  // of HSTU's bands, in units; 0: as the kernels choose
  Times times = Times::kSorted;
};

inline std::vector<std::int64_t> make_offsets(const std::vector<int>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (const int n : lengths) offsets.push_back(offsets.back() + n);
  return offsets;
}

// Of keys or of queries, each of which is the next key's. Events in bursts: gaps of 0 or
// log-uniform from 1 second to 2 days.
inline std::vector<std::int64_t> make_times(const AttentionProblemCase& c, bool keys) {
  using Times = AttentionProblemCase::Times;
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<std::int64_t> all;
  for (const int n : c.lengths) {
    std::int64_t now = 1'600'000'000 + static_cast<std::int64_t>(uniform(random) * 1e7);
    std::vector<std::int64_t> times;
    for (int i = 0; i <= n; ++i) {
      if (uniform(random) > 0.4) {
        double gap = std::exp(uniform(random) * std::log(1.7e5));
        if (c.times == Times::kMilliseconds) gap *= 3;
        if (c.times == Times::kWide) gap *= 1e9;
        now += static_cast<std::int64_t>(gap);
      }
      times.push_back(now);
    }
    if (c.times == Times::kUnsorted) std::shuffle(times.begin(), times.end(), random);
    all.insert(all.end(), times.begin() + (keys ? 0 : 1), times.end() - (keys ? 1 : 0));
  }
  return all;
}

inline std::vector<float> make_table(bool wanted, std::size_t size, float scale,
                                     std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.f, 1.f);
  std::vector<float> table(wanted ? size : 0);
  for (float& x : table) x = scale * normal(random);
  return table;
}

// What differs between the two kinds of attention.
struct AttentionProblemKind {
  int maps = 1;           // results a head, side by side
  float table_start = 0;  // scale of what the tables' gradients are added to
};

// q, k, v are slices of one buffer [U | V | Q | K], as in a layer.
template <class Params>
struct AttentionProblem {
  AttentionProblemCase c;
  std::vector<std::int64_t> offsets;
  std::int64_t tokens;
  int max_length;
  int maps;
  std::int64_t v_width, q_width, in_stride, slack;
  DeviceArray<std::int64_t> device_offsets, key_times, query_times;
  std::vector<float> position_start, time_start;  // what the gradients are added to
  DeviceArray<float> position, time, dposition, dtime;
  DeviceArray<__nv_bfloat16> in, dout, out, dq, dk, dv;
  DeviceArray<char> workspace;
  Params params;

  // exact_rows: rows of results follow each other without a gap.
  AttentionProblem(const AttentionProblemCase& the_case, const AttentionProblemKind& kind,
                   std::uint64_t seed, bool exact_rows)
      : c(the_case),
        offsets(make_offsets(c.lengths)),
        tokens(offsets.back()),
        max_length(c.lengths.empty() ? 0 : *std::max_element(c.lengths.begin(), c.lengths.end())),
        maps(kind.maps),
        v_width(static_cast<std::int64_t>(c.heads) * c.value_width),
        q_width(static_cast<std::int64_t>(c.heads) * c.query_width),
        in_stride((maps + 1) * v_width + 2 * q_width),
        slack(exact_rows ? 0 : 8),
        device_offsets(offsets),
        key_times(make_times(c, true)),
        query_times(make_times(c, false)),
        position_start(make_table(c.position,
                                  static_cast<std::size_t>(std::max(2 * max_length - 1, 0)),
                                  kind.table_start, seed + 3)),
        time_start(make_table(c.time, 129, kind.table_start, seed + 4)),
        position(make_table(c.position, position_start.size(), 0.3f, seed + 1)),
        time(make_table(c.time, 129, 0.3f, seed + 2)),
        dposition(position.size()),
        dtime(time.size()),
        in(static_cast<std::size_t>(tokens * in_stride)),
        dout(static_cast<std::size_t>(tokens * maps * v_width)),
        out(static_cast<std::size_t>(tokens * (maps * v_width + slack))),
        dq(static_cast<std::size_t>(tokens * (q_width + slack))),
        dk(dq.size()),
        dv(static_cast<std::size_t>(tokens * (v_width + slack))) {
    fill_normal(in, static_cast<float>(std::sqrt(1.5) / std::pow(c.query_width, 0.25)),
                seed * 7 + 1);
    fill_normal(dout, 1.f, seed * 7 + 2);
    poison();
    Params& p = params;
    p.v = in.data() + maps * v_width;
    p.q = in.data() + (maps + 1) * v_width;
    p.k = in.data() + (maps + 1) * v_width + q_width;
    p.q_stride = p.k_stride = p.v_stride = in_stride;
    p.out = out.data();
    p.out_stride = maps * v_width + slack;
    p.dout = dout.data();
    p.dout_stride = maps * v_width;
    p.dq = dq.data();
    p.dk = dk.data();
    p.dv = dv.data();
    p.dq_stride = p.dk_stride = q_width + slack;
    p.dv_stride = v_width + slack;
    p.offsets = device_offsets.data();
    p.tokens = tokens;
    p.batch = static_cast<int>(c.lengths.size());
    p.heads = c.heads;
    p.query_width = c.query_width;
    p.value_width = c.value_width;
    p.alpha = c.alpha;
    p.norm_length = max_length + 11;
    p.deterministic = c.deterministic;
    if (c.position) {
      p.position = position.data();
      p.position_length = max_length;
      p.dposition = dposition.data();
    }
    if (c.time) {
      p.time = time.data();
      p.dtime = dtime.data();
      p.key_times = key_times.data();
      p.query_times = query_times.data();
    }
  }
  void add_workspace(std::size_t bytes) {
    workspace.resize(bytes);
    workspace.fill_bytes(0xff);
    params.workspace = workspace.data();
    params.workspace_bytes = bytes;
  }
  void poison() const {
    for (const auto* array : {&out, &dq, &dk, &dv}) array->fill_bytes(0xff);
    if (c.position) dposition.copy_from(position_start);
    if (c.time) dtime.copy_from(time_start);
  }
};

}  // namespace turbogr::bench
