// Checks and times FuXi attention on the GPU. Needs nothing but the NVIDIA driver.
//
//   fuxi_bench test
//   fuxi_bench time --lengths FILE|uniform:L:B --heads H --head-dim D [--maps
//   none|position|time|both]
//                   [--table-gradients yes|no] [--deterministic no|yes] [--name NAME] [--json FILE]
//
// `time` checks a sample of the results first. FLOPs are those of the causal half: forward
// n (n + 1) / 2 * H * 2 * (dq + dv + 2 dv) a sequence, backward twice that, as in the model's MFU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "bench/fuxi_reference.cuh"
#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/fuxi.h"

namespace turbogr::bench {
namespace {

using cuda::check;
using cuda::FuxiParams;

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size = 0) : size_(size) {
    if (size > 0) check(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  void fill_bytes(int byte) const {
    if (size_ > 0) check(cudaMemset(data_, byte, size_ * sizeof(T)), "cudaMemset");
  }
  void copy_from(const std::vector<T>& from) const {
    check(cudaMemcpy(data_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<T> to_host() const {
    std::vector<T> host(size_);
    check(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

__device__ std::uint32_t hash(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return static_cast<std::uint32_t>(x);
}

// Normal numbers, by the sum of eight uniform ones.
__global__ void fill_normal(__nv_bfloat16* to, std::int64_t size, float scale, std::uint64_t seed) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
       i += stride) {
    float sum = 0;
    for (std::uint64_t part = 0; part < 4; ++part) {
      const std::uint32_t bits =
          hash(seed * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(i) * 4 + part);
      sum += static_cast<float>(bits & 0xffff) + static_cast<float>(bits >> 16) - 65535.f;
    }
    to[i] = __float2bfloat16(sum / 65536.f * 1.2247f * scale);
  }
}

__global__ void count_poison(const __nv_bfloat16* rows, std::int64_t stride, std::int64_t width,
                             unsigned long long* bad) {
  const std::int64_t token = blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < stride; c += blockDim.x) {
    const float x = __bfloat162float(rows[token * stride + c]);
    if (c < width && !isfinite(x)) atomicAdd(bad, 1ull);
    if (c >= width && !isnan(x)) atomicAdd(bad + 1, 1ull);
  }
}

struct Case {
  std::string name;
  std::vector<int> lengths;
  int heads = 1;
  int query_width = 64;
  int value_width = 64;
  bool position = true;
  bool time = true;
  double alpha = 1;
  enum class Times { kSorted, kUnsorted, kWide } times = Times::kSorted;
};

std::vector<std::int64_t> make_offsets(const std::vector<int>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (const int n : lengths) offsets.push_back(offsets.back() + n);
  return offsets;
}

// Events in bursts: gaps of 0 or log-uniform from 1 second to 2 days.
std::vector<std::int64_t> make_times(const Case& c, bool keys) {
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<std::int64_t> all;
  for (const int n : c.lengths) {
    std::int64_t now = 1'600'000'000 + static_cast<std::int64_t>(uniform(random) * 1e7);
    std::vector<std::int64_t> times;
    for (int i = 0; i <= n; ++i) {
      if (uniform(random) > 0.4) {
        const double gap = std::exp(uniform(random) * std::log(1.7e5));
        now += static_cast<std::int64_t>(c.times == Case::Times::kWide ? gap * 1e9 : gap);
      }
      times.push_back(now);
    }
    if (c.times == Case::Times::kUnsorted) std::shuffle(times.begin(), times.end(), random);
    all.insert(all.end(), times.begin() + (keys ? 0 : 1), times.end() - (keys ? 1 : 0));
  }
  return all;
}

std::vector<float> make_table(bool wanted, std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.f, 0.3f);
  std::vector<float> table(wanted ? size : 0);
  for (float& x : table) x = normal(random);
  return table;
}

// Everything a case needs on the device. q, k, v are slices of one buffer, as in a layer.
struct Problem {
  Case c;
  std::vector<std::int64_t> offsets;
  std::int64_t tokens;
  int max_length;
  std::int64_t v_width, q_width, in_stride, slack;
  DeviceArray<std::int64_t> device_offsets, key_times, query_times;
  std::vector<float> position_start, time_start;  // what the gradients are added to
  DeviceArray<float> position, time, dposition, dtime;
  DeviceArray<__nv_bfloat16> in, dout, out, dq, dk, dv;
  DeviceArray<char> workspace;
  FuxiParams params;

  Problem(const Case& the_case, std::uint64_t seed, bool exact_rows)
      : c(the_case),
        offsets(make_offsets(c.lengths)),
        tokens(offsets.back()),
        max_length(c.lengths.empty() ? 0 : *std::max_element(c.lengths.begin(), c.lengths.end())),
        v_width(static_cast<std::int64_t>(c.heads) * c.value_width),
        q_width(static_cast<std::int64_t>(c.heads) * c.query_width),
        in_stride(4 * v_width + 2 * q_width),
        slack(exact_rows ? 0 : 8),
        device_offsets(offsets),
        key_times(make_times(c, true)),
        query_times(make_times(c, false)),
        position_start(
            make_table(c.position, static_cast<std::size_t>(2 * max_length - 1), seed + 3)),
        time_start(make_table(c.time, 129, seed + 4)),
        position(make_table(c.position, position_start.size(), seed + 1)),
        time(make_table(c.time, 129, seed + 2)),
        dposition(position.size()),
        dtime(time.size()),
        in(static_cast<std::size_t>(tokens * in_stride)),
        dout(static_cast<std::size_t>(tokens * 3 * v_width)),
        out(static_cast<std::size_t>(tokens * (3 * v_width + slack))),
        dq(static_cast<std::size_t>(tokens * (q_width + slack))),
        dk(dq.size()),
        dv(static_cast<std::size_t>(tokens * (v_width + slack))) {
    fill(in, static_cast<float>(std::sqrt(1.5) / std::pow(c.query_width, 0.25)), seed * 7 + 1);
    fill(dout, 1.f, seed * 7 + 2);
    poison();
    FuxiParams& p = params;
    // [U | V | Q | K]
    p.v = in.data() + 3 * v_width;
    p.q = in.data() + 4 * v_width;
    p.k = in.data() + 4 * v_width + q_width;
    p.q_stride = p.k_stride = p.v_stride = in_stride;
    p.out = out.data();
    p.out_stride = 3 * v_width + slack;
    p.dout = dout.data();
    p.dout_stride = 3 * v_width;
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
  void add_workspace() {
    const std::size_t bytes = cuda::fuxi_backward_workspace_bytes(params);
    new (&workspace) DeviceArray<char>(bytes);
    workspace.fill_bytes(0xff);
    params.workspace = workspace.data();
    params.workspace_bytes = bytes;
  }
  static void fill(const DeviceArray<__nv_bfloat16>& array, float scale, std::uint64_t seed) {
    if (array.size() == 0) return;
    fill_normal<<<1024, 256>>>(array.data(), static_cast<std::int64_t>(array.size()), scale, seed);
    check(cudaGetLastError(), "fill_normal");
  }
  void poison() const {
    for (const auto* array : {&out, &dq, &dk, &dv}) array->fill_bytes(0xff);
    if (c.position) dposition.copy_from(position_start);
    if (c.time) dtime.copy_from(time_start);
  }
};

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(sum / norm) : std::sqrt(sum);
}

struct References {
  DeviceArray<double> out, dq, dk, dv, dposition, dtime;
  References(const Problem& problem, std::int64_t samples)
      : out(static_cast<std::size_t>(samples * 3 * problem.c.value_width)),
        dq(static_cast<std::size_t>(samples * problem.c.query_width)),
        dk(dq.size()),
        dv(static_cast<std::size_t>(samples * problem.c.value_width)),
        dposition(problem.position.size()),
        dtime(problem.time.size()) {
    dposition.fill_bytes(0);
    dtime.fill_bytes(0);
  }
};

bool check_poison(const Problem& problem) {
  if (problem.tokens == 0) return true;
  const DeviceArray<unsigned long long> bad(2);
  bad.fill_bytes(0);
  const auto scan = [&](const DeviceArray<__nv_bfloat16>& array, std::int64_t width) {
    count_poison<<<static_cast<unsigned>(problem.tokens), 128>>>(
        array.data(), width + problem.slack, width, bad.data());
  };
  scan(problem.out, 3 * problem.v_width);
  scan(problem.dq, problem.q_width);
  scan(problem.dk, problem.q_width);
  scan(problem.dv, problem.v_width);
  const auto counts = bad.to_host();
  if (counts[0] == 0 && counts[1] == 0) return true;
  std::printf("  %s: %llu results not finite, %llu writes outside\n", problem.c.name.c_str(),
              counts[0], counts[1]);
  return false;
}

// Compares the results now in `problem` with the reference; returns false and says so if they are
// off.
bool verify(const Problem& problem, std::int64_t max_samples) {
  const FuxiParams& p = problem.params;
  bool good = check_poison(problem);
  if (problem.tokens == 0) return good;
  std::vector<int> sequence;
  for (std::size_t b = 0; b < problem.c.lengths.size(); ++b) {
    sequence.insert(sequence.end(), static_cast<std::size_t>(problem.c.lengths[b]),
                    static_cast<int>(b));
  }
  const DeviceArray<int> token_sequence(sequence);
  const std::int64_t pairs = problem.tokens * p.heads;
  const std::int64_t step = std::max<std::int64_t>(1, (pairs + max_samples - 1) / max_samples);
  const std::int64_t samples = (pairs + step - 1) / step;
  const References exact(problem, samples);
  const References plain(problem, samples);
  const auto run = [&](const References& to, auto query_kernel, auto key_kernel) {
    const FuxiReferenceArgs args{p,
                                 token_sequence.data(),
                                 step,
                                 true,
                                 to.out.data(),
                                 to.dq.data(),
                                 to.dk.data(),
                                 to.dv.data(),
                                 step == 1 ? to.dposition.data() : nullptr,
                                 step == 1 ? to.dtime.data() : nullptr};
    query_kernel<<<static_cast<unsigned>(samples), kReferenceThreads>>>(args);
    key_kernel<<<static_cast<unsigned>(samples), kReferenceThreads>>>(args);
    check(cudaDeviceSynchronize(), "reference");
  };
  run(exact, fuxi_reference_kernel<false, true>, fuxi_reference_kernel<false, false>);
  run(plain, fuxi_reference_kernel<true, true>, fuxi_reference_kernel<true, false>);

  std::printf("  %-24s", problem.c.name.c_str());
  const auto judge = [&](const char* what, const std::vector<double>& got,
                         const DeviceArray<double>& e, const DeviceArray<double>& r) {
    const auto reference = e.to_host();
    const double error = distance(got, reference);
    const double yardstick = distance(r.to_host(), reference);
    const bool fits = error <= 2 * yardstick + 1e-6;
    good &= fits;
    std::printf(" %s %.2e (%.2e)%s", what, error, yardstick, fits ? "" : " WRONG");
  };
  const auto compare = [&](const char* what, const DeviceArray<__nv_bfloat16>& got, int width,
                           const DeviceArray<double>& e, const DeviceArray<double>& r) {
    const auto host = got.to_host();
    const std::int64_t stride = static_cast<std::int64_t>(p.heads) * width + problem.slack;
    std::vector<double> taken;
    for (std::int64_t s = 0; s < samples; ++s) {
      const std::int64_t pair = s * step;
      for (int c = 0; c < width; ++c) {
        const auto at =
            static_cast<std::size_t>(pair / p.heads * stride + pair % p.heads * width + c);
        taken.push_back(static_cast<double>(__bfloat162float(host[at])));
      }
    }
    judge(what, taken, e, r);
  };
  compare("out", problem.out, 3 * p.value_width, exact.out, plain.out);
  compare("dq", problem.dq, p.query_width, exact.dq, plain.dq);
  compare("dk", problem.dk, p.query_width, exact.dk, plain.dk);
  compare("dv", problem.dv, p.value_width, exact.dv, plain.dv);
  const auto compare_table = [&](const char* what, const DeviceArray<float>& got,
                                 const std::vector<float>& start, const DeviceArray<double>& e,
                                 const DeviceArray<double>& r) {
    if (got.size() == 0 || step != 1) return;
    const auto host = got.to_host();
    std::vector<double> taken;
    taken.reserve(host.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
      taken.push_back(static_cast<double>(host[i]) - static_cast<double>(start[i]));
    }
    judge(what, taken, e, r);
  };
  if (p.dposition != nullptr) {
    compare_table("dposition", problem.dposition, problem.position_start, exact.dposition,
                  plain.dposition);
  }
  if (p.dtime != nullptr) {
    compare_table("dtime", problem.dtime, problem.time_start, exact.dtime, plain.dtime);
  }
  std::printf("\n");
  return good;
}

// Whether results that no atomic add goes into have the same bits every time; a race would show.
bool repeats(const Problem& problem, int times) {
  const auto bits = [&] {
    std::vector<std::vector<__nv_bfloat16>> all;
    for (const auto* array : {&problem.out, &problem.dk, &problem.dv}) {
      all.push_back(array->to_host());
    }
    return all;
  };
  const auto before = bits();
  bool same = true;
  for (int i = 0; i < times; ++i) {
    problem.poison();
    cuda::fuxi_forward(problem.params);
    cuda::fuxi_backward(problem.params);
    check(cudaDeviceSynchronize(), "fuxi");
    const auto now = bits();
    for (std::size_t a = 0; a < now.size(); ++a) {
      same &= now[a].empty() || std::memcmp(now[a].data(), before[a].data(),
                                            now[a].size() * sizeof(__nv_bfloat16)) == 0;
    }
  }
  if (!same) std::printf("  %s: not the same bits every time\n", problem.c.name.c_str());
  return same;
}

int test(bool few) {
  const std::vector<int> odd = {1, 65, 0, 130, 64, 63, 3, 128, 0, 257, 90};
  int failures = 0;
  int cases = 0;
  const auto run = [&](const Case& c, bool dposition = true, bool dtime = true) {
    Problem problem(c, 31 + static_cast<std::uint64_t>(cases), false);
    if (!dposition) problem.params.dposition = nullptr;
    if (!dtime) problem.params.dtime = nullptr;
    problem.add_workspace();
    cuda::plan_fuxi(problem.params);
    // Twice: the work list must be good for more than one call.
    cuda::fuxi_forward(problem.params);
    cuda::fuxi_backward(problem.params);
    problem.poison();
    cuda::fuxi_forward(problem.params);
    cuda::fuxi_backward(problem.params);
    check(cudaDeviceSynchronize(), c.name.c_str());
    if (!verify(problem, 1 << 30) || !repeats(problem, 3)) ++failures;
    ++cases;
  };
  Case c;
  c.lengths = odd;
  c.heads = 3;
  c.alpha = 0.7;
  for (const int width : {128, 64, 32, 16, 48, 96, 200, 256}) {
    if (few && width != 128 && width != 48) continue;
    c.name = "width " + std::to_string(width);
    c.query_width = c.value_width = width;
    run(c);
  }
  c = {};
  c.lengths = {300, 517, 1000, 40};
  c.heads = 2;
  c.query_width = 64;
  c.value_width = 128;
  c.name = "dq 64 dv 128";
  run(c);
  c.query_width = 128;
  c.value_width = 64;
  c.name = "dq 128 dv 64";
  run(c);
  c.name = "unsorted times";
  c.times = Case::Times::kUnsorted;
  run(c);
  c.name = "times over 2^32";
  c.times = Case::Times::kWide;
  if (!few) run(c);
  c.times = Case::Times::kSorted;
  c.name = "no dtime";
  run(c, true, false);
  c.name = "no dposition";
  run(c, false, true);
  c.time = false;
  c.name = "position only";
  run(c);
  c.time = true;
  c.position = false;
  c.name = "time only";
  run(c);
  c.time = false;
  c.name = "no shared map";
  run(c);
  c = {};
  c.name = "empty batch";
  c.lengths = {0, 0};
  c.position = false;
  run(c);
  c.name = "one token";
  c.lengths = {1};
  c.position = true;
  run(c);
  c.name = "long";
  c.lengths = few ? std::vector<int>{700} : std::vector<int>{2500, 1, 1600};
  c.heads = 4;
  c.query_width = c.value_width = 128;
  run(c);
  std::printf("%d of %d cases good\n", cases - failures, cases);
  return failures == 0 ? 0 : 1;
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
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return static_cast<double>(times[static_cast<std::size_t>(repeats) / 2]);
}

std::vector<int> read_lengths(const std::string& source) {
  if (source.rfind("uniform:", 0) == 0) {
    int length = 0;
    int count = 0;
    TGR_CHECK(std::sscanf(source.c_str(), "uniform:%d:%d", &length, &count) == 2, "lengths '",
              source, "', wanted uniform:LENGTH:COUNT");
    return std::vector<int>(static_cast<std::size_t>(count), length);
  }
  std::ifstream file(source);
  TGR_CHECK(file.good(), "cannot read lengths from ", source);
  std::vector<int> lengths;
  for (int n; file >> n;) lengths.push_back(n);
  return lengths;
}

int time(const std::vector<std::string>& options) {
  Case c;
  std::string maps = "both";
  std::string json;
  bool table_gradients = true;
  bool deterministic = false;
  for (std::size_t i = 0; i + 1 < options.size(); i += 2) {
    const std::string& key = options[i];
    const std::string& value = options[i + 1];
    if (key == "--lengths") {
      c.lengths = read_lengths(value);
      if (c.name.empty()) c.name = value.substr(value.find_last_of('/') + 1);
    } else if (key == "--heads") {
      c.heads = std::stoi(value);
    } else if (key == "--head-dim") {
      c.query_width = c.value_width = std::stoi(value);
    } else if (key == "--maps") {
      maps = value;
    } else if (key == "--name") {
      c.name = value;
    } else if (key == "--deterministic") {
      deterministic = value == "yes";
    } else if (key == "--table-gradients") {
      table_gradients = value == "yes";
    } else if (key == "--json") {
      json = value;
    } else {
      TGR_CHECK(false, "unknown option ", key);
    }
  }
  c.position = maps == "position" || maps == "both";
  c.time = maps == "time" || maps == "both";
  Problem problem(c, static_cast<std::uint64_t>(std::random_device{}()), true);
  if (!table_gradients) problem.params.dposition = problem.params.dtime = nullptr;
  problem.params.deterministic = deterministic;
  problem.add_workspace();
  const FuxiParams& p = problem.params;
  cuda::plan_fuxi(p);
  cuda::fuxi_forward(p);
  cuda::fuxi_backward(p);
  check(cudaDeviceSynchronize(), "fuxi");
  if (!verify(problem, 1000) || !repeats(problem, 3)) return 1;

  double pairs = 0;
  for (const int n : c.lengths) pairs += 0.5 * n * (n + 1.0);
  const int products = 1 + c.position + c.time;
  const double flops = pairs * c.heads * 2.0 * (c.query_width + products * c.value_width);
  const double plan_ms = median_ms([&] { cuda::plan_fuxi(p); }, 21);
  const double forward_ms = median_ms([&] { cuda::fuxi_forward(p); }, 31);
  const double backward_ms = median_ms([&] { cuda::fuxi_backward(p); }, 21);
  const double both_rate = 3 * flops / (forward_ms + backward_ms) * 1e-9;
  std::printf(
      "%-14s maps %-8s tables %d plan %.4f ms  forward %.4f ms %.1f TFLOP/s  backward %.4f ms %.1f "
      "TFLOP/s  together %.1f TFLOP/s\n",
      c.name.c_str(), maps.c_str(), table_gradients, plan_ms, forward_ms, flops / forward_ms * 1e-9,
      backward_ms, 2 * flops / backward_ms * 1e-9, both_rate);
  if (!json.empty()) {
    std::FILE* file = std::fopen(json.c_str(), "a");
    TGR_CHECK(file != nullptr, "cannot write ", json);
    std::fprintf(file,
                 "{\"name\": \"%s\", \"maps\": \"%s\", \"tokens\": %lld, \"heads\": %d, \"width\": "
                 "%d, \"plan_ms\": %.5f, \"forward_ms\": %.5f, \"backward_ms\": %.5f, \"tflops\": "
                 "%.2f}\n",
                 c.name.c_str(), maps.c_str(), static_cast<long long>(problem.tokens), c.heads,
                 c.query_width, plan_ms, forward_ms, backward_ms, both_rate);
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace turbogr::bench

int main(int argc, char** argv) {
  const std::vector<std::string> options(argv + 1, argv + argc);
  try {
    if (!options.empty() && options[0] == "test") {
      return turbogr::bench::test(options.size() > 1 && options[1] == "few");
    }
    if (!options.empty() && options[0] == "time") {
      return turbogr::bench::time({options.begin() + 1, options.end()});
    }
    std::fprintf(
        stderr,
        "usage: fuxi_bench test [few] | time --lengths FILE|uniform:L:B --heads H --head-dim D\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuxi_bench: %s\n", error.what());
  }
  return 2;
}
