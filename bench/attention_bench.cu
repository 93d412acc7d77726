// Checks and times HSTU attention on the GPU. Needs nothing but the NVIDIA driver.
//
//   attention_bench test
//   attention_bench time --lengths FILE|uniform:L:B|random:LOW:HIGH:B --heads H --head-dim D
//                        [--bias none|position|time|both] [--times sorted|unsorted]
//                        [--pass both|forward] [--table-gradients yes|no] [--deterministic no|yes]
//                        [--name NAME] [--json FILE]
//
// `test` does both backward passes, and looks for a bit that differs in 20 calls of the
// deterministic one, made while other calls come and go on the GPU.
// `time` checks a sample of the results first. FLOPs are those of the causal half: forward
// n (n + 1) / 2 * H * 2 * (dq + dv) a sequence, backward 2.5 times that.
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

#include "bench/attention_reference.cuh"
#include "turbogr/cuda/check.cuh"
#include "turbogr/ops/attention/hopper/attention.h"

namespace turbogr::bench {
namespace {

using cuda::AttentionParams;
using cuda::check;

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
  void fill_bytes(int byte) {
    if (size_ > 0) check(cudaMemset(data_, byte, size_ * sizeof(T)), "cudaMemset");
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

__global__ void count_poison(const __nv_bfloat16* rows, std::int64_t tokens, std::int64_t stride,
                             int width, unsigned long long* bad_inside,
                             unsigned long long* bad_outside) {
  const std::int64_t token = blockIdx.x;
  if (token >= tokens) return;
  for (std::int64_t c = threadIdx.x; c < stride; c += blockDim.x) {
    const float x = __bfloat162float(rows[token * stride + c]);
    if (c < width && !isfinite(x)) atomicAdd(bad_inside, 1ull);
    if (c >= width && !isnan(x)) atomicAdd(bad_outside, 1ull);
  }
}

struct Case {
  std::string name;
  std::vector<int> lengths;
  int heads = 1;
  int query_width = 64;
  int value_width = 64;
  bool position = false;
  bool time = false;
  double alpha = 1;
  bool deterministic = false;
  enum class Times { kSorted, kMilliseconds, kUnsorted, kWide } times = Times::kSorted;
};

std::vector<std::int64_t> make_offsets(const std::vector<int>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (const int n : lengths) offsets.push_back(offsets.back() + n);
  return offsets;
}

// Events in bursts: gaps of 0 or log-uniform from 1 second to 2 days.
void make_times(const Case& c, std::mt19937_64& random, std::vector<std::int64_t>& keys,
                std::vector<std::int64_t>& queries) {
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const int n : c.lengths) {
    std::int64_t now = 1'600'000'000 + static_cast<std::int64_t>(uniform(random) * 1e7);
    std::vector<std::int64_t> times;
    for (int i = 0; i <= n; ++i) {
      if (uniform(random) > 0.4) {
        double gap = std::exp(uniform(random) * std::log(1.7e5));
        if (c.times == Case::Times::kMilliseconds) gap *= 3;
        if (c.times == Case::Times::kWide) gap *= 1e9;
        now += static_cast<std::int64_t>(gap);
      }
      times.push_back(now);
    }
    if (c.times == Case::Times::kUnsorted) std::shuffle(times.begin(), times.end(), random);
    keys.insert(keys.end(), times.begin(), times.end() - 1);
    queries.insert(queries.end(), times.begin() + 1, times.end());
  }
}

std::vector<float> make_table(std::size_t size, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.f, 0.3f);
  std::vector<float> table(size);
  for (float& x : table) x = normal(random);
  return table;
}

// Everything a case needs on the device. q, k, v are slices of one buffer, as in a layer.
struct Problem {
  Case c;
  std::vector<std::int64_t> offsets;
  std::int64_t tokens;
  int max_length;
  std::int64_t in_stride, out_width, dq_width, out_stride, dq_stride;
  std::vector<std::int64_t> host_keys, host_queries;
  DeviceArray<std::int64_t> device_offsets, key_times, query_times;
  DeviceArray<float> position, time, dposition, dtime;
  DeviceArray<__nv_bfloat16> in, dout, out, dq, dk, dv;
  DeviceArray<char> workspace;
  AttentionParams params;

  static std::vector<std::int64_t> times_of(const Case& c, bool keys) {
    std::mt19937_64 random(17);
    std::vector<std::int64_t> k;
    std::vector<std::int64_t> q;
    make_times(c, random, k, q);
    return keys ? k : q;
  }
  static std::vector<float> table_of(bool wanted, std::size_t size, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    return wanted ? make_table(size, random) : std::vector<float>{};
  }
  static std::int64_t slack(std::int64_t width, bool exact) { return exact ? width : width + 8; }

  Problem(const Case& the_case, std::uint64_t seed, bool exact_rows)
      : c(the_case),
        offsets(make_offsets(c.lengths)),
        tokens(offsets.back()),
        max_length(c.lengths.empty() ? 0 : *std::max_element(c.lengths.begin(), c.lengths.end())),
        in_stride(static_cast<std::int64_t>(c.heads) * (2 * c.query_width + 2 * c.value_width)),
        out_width(static_cast<std::int64_t>(c.heads) * c.value_width),
        dq_width(static_cast<std::int64_t>(c.heads) * c.query_width),
        out_stride(slack(out_width, exact_rows)),
        dq_stride(slack(dq_width, exact_rows)),
        host_keys(times_of(c, true)),
        host_queries(times_of(c, false)),
        device_offsets(offsets),
        key_times(host_keys),
        query_times(host_queries),
        // Readable in pieces of four.
        position(
            table_of(c.position, static_cast<std::size_t>(2 * max_length + 2) / 4 * 4, seed + 1)),
        time(table_of(c.time, 129, seed + 2)),
        dposition(position.size()),
        dtime(time.size()),
        in(static_cast<std::size_t>(tokens * in_stride)),
        dout(static_cast<std::size_t>(tokens * out_width)),
        out(static_cast<std::size_t>(tokens * out_stride)),
        dq(static_cast<std::size_t>(tokens * dq_stride)),
        dk(static_cast<std::size_t>(tokens * dq_stride)),
        dv(static_cast<std::size_t>(tokens * out_stride)) {
    const float scale = static_cast<float>(std::sqrt(1.5) / std::pow(c.query_width, 0.25));
    fill(in, scale, seed * 7 + 1);
    fill(dout, 1.f, seed * 7 + 2);
    poison();
    AttentionParams& p = params;
    // [U | V | Q | K]
    const __nv_bfloat16* base = in.data();
    p.v = base + out_width;
    p.q = base + 2 * out_width;
    p.k = base + 2 * out_width + dq_width;
    p.out = out.data();
    p.q_stride = p.k_stride = p.v_stride = in_stride;
    p.out_stride = p.dv_stride = out_stride;
    p.dq_stride = p.dk_stride = dq_stride;
    p.dout = dout.data();
    p.dout_stride = out_width;
    p.dq = dq.data();
    p.dk = dk.data();
    p.dv = dv.data();
    p.offsets = device_offsets.data();
    p.tokens = tokens;
    p.batch = static_cast<int>(c.lengths.size());
    p.heads = c.heads;
    p.query_width = c.query_width;
    p.value_width = c.value_width;
    p.alpha = c.alpha;
    p.norm_length = max_length + 11;
    p.max_length = max_length;
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
  void add_workspace() {
    const std::size_t bytes = cuda::attention_backward_workspace_bytes(params);
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
  void poison() {
    for (auto* array : {&out, &dq, &dk, &dv}) array->fill_bytes(0xff);
    dposition.fill_bytes(0);
    dtime.fill_bytes(0);
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

struct Checked {
  std::string what;
  double error;
  double plain;
  bool good() const { return error <= 2 * plain + 1e-6; }
};

struct References {
  DeviceArray<double> out, dq, dk, dv, dposition, dtime;
  References(const Problem& problem, std::int64_t samples)
      : out(static_cast<std::size_t>(samples * problem.c.value_width)),
        dq(static_cast<std::size_t>(samples * problem.c.query_width)),
        dk(dq.size()),
        dv(out.size()),
        dposition(problem.position.size()),
        dtime(problem.time.size()) {
    dposition.fill_bytes(0);
    dtime.fill_bytes(0);
  }
};

// Compares the results now in `problem` with the reference; returns false and says so if they are
// off.
bool verify(const Problem& problem, bool backward, std::int64_t max_samples, bool quiet) {
  const AttentionParams& p = problem.params;
  DeviceArray<unsigned long long> bad(2);
  bad.fill_bytes(0);
  const auto scan = [&](const DeviceArray<__nv_bfloat16>& array, std::int64_t stride,
                        std::int64_t width) {
    if (problem.tokens == 0) return;
    count_poison<<<static_cast<unsigned>(problem.tokens), 128>>>(
        array.data(), problem.tokens, stride, static_cast<int>(width), bad.data(), bad.data() + 1);
  };
  scan(problem.out, problem.out_stride, problem.out_width);
  if (backward) {
    scan(problem.dq, problem.dq_stride, problem.dq_width);
    scan(problem.dk, problem.dq_stride, problem.dq_width);
    scan(problem.dv, problem.out_stride, problem.out_width);
  }
  const auto counts = bad.to_host();
  bool good = counts[0] == 0 && counts[1] == 0;
  if (!good) {
    std::printf("  %s: %llu results not finite, %llu writes outside\n", problem.c.name.c_str(),
                counts[0], counts[1]);
  }
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
    ReferenceArgs args{p,
                       token_sequence.data(),
                       static_cast<int>(samples),
                       step,
                       to.out.data(),
                       to.dq.data(),
                       to.dk.data(),
                       to.dv.data(),
                       step == 1 ? to.dposition.data() : nullptr,
                       step == 1 ? to.dtime.data() : nullptr};
    if (!backward) args.p.dout = nullptr;
    const auto blocks = static_cast<unsigned>(samples);
    query_kernel<<<blocks, kReferenceThreads>>>(args);
    if (backward) key_kernel<<<blocks, kReferenceThreads>>>(args);
    check(cudaDeviceSynchronize(), "reference");
  };
  run(exact, reference_kernel<false, true>, reference_kernel<false, false>);
  run(plain, reference_kernel<true, true>, reference_kernel<true, false>);

  std::vector<Checked> results;
  const auto compare = [&](const char* what, const DeviceArray<__nv_bfloat16>& got,
                           std::int64_t stride, int width, const DeviceArray<double>& e,
                           const DeviceArray<double>& r) {
    const auto host = got.to_host();
    std::vector<double> taken;
    for (std::int64_t s = 0; s < samples; ++s) {
      const std::int64_t pair = s * step;
      for (int c = 0; c < width; ++c) {
        const auto at =
            static_cast<std::size_t>(pair / p.heads * stride + pair % p.heads * width + c);
        taken.push_back(static_cast<double>(__bfloat162float(host[at])));
      }
    }
    const auto reference = e.to_host();
    results.push_back({what, distance(taken, reference), distance(r.to_host(), reference)});
  };
  compare("out", problem.out, problem.out_stride, p.value_width, exact.out, plain.out);
  if (backward) {
    compare("dq", problem.dq, problem.dq_stride, p.query_width, exact.dq, plain.dq);
    compare("dk", problem.dk, problem.dq_stride, p.query_width, exact.dk, plain.dk);
    compare("dv", problem.dv, problem.out_stride, p.value_width, exact.dv, plain.dv);
    const auto compare_table = [&](const char* what, const DeviceArray<float>& got,
                                   const DeviceArray<double>& e, const DeviceArray<double>& r) {
      if (got.size() == 0 || step != 1) return;
      const auto host = got.to_host();
      const std::vector<double> taken(host.begin(), host.end());
      const auto reference = e.to_host();
      // The reference rounds a pair's gradient in each head; summing H of them in bf16 rounds H
      // growing sums more, with 1 + (H + 1) / 2 times the variance.
      const double head_sums = std::sqrt(1 + (problem.c.heads + 1) / 2.0);
      results.push_back(
          {what, distance(taken, reference), head_sums * distance(r.to_host(), reference)});
    };
    compare_table("dposition", problem.dposition, exact.dposition, plain.dposition);
    compare_table("dtime", problem.dtime, exact.dtime, plain.dtime);
  }
  bool fits = true;
  for (const Checked& result : results) fits &= result.good();
  good &= fits;
  if (!fits || !quiet) {
    std::printf("  %-28s", problem.c.name.c_str());
    for (const Checked& result : results) {
      std::printf(" %s %.2e (plain %.2e)%s", result.what.c_str(), result.error, result.plain,
                  result.good() ? "" : " WRONG");
    }
    std::printf("\n");
  }
  return good;
}

// All results of backward calls, as bytes.
std::vector<char> gradient_bytes(const Problem& problem) {
  std::vector<char> bytes;
  const auto append = [&](const auto& array) {
    const auto host = array.to_host();
    const auto* data = reinterpret_cast<const char*>(host.data());
    bytes.insert(bytes.end(), data, data + host.size() * sizeof(host[0]));
  };
  append(problem.dq);
  append(problem.dk);
  append(problem.dv);
  append(problem.dposition);
  append(problem.dtime);
  return bytes;
}

// Whether 20 deterministic calls give the same bits, while a call on another stream takes
// multiprocessors away, so that work is done in another order.
bool repeats(Problem& problem) {
  if (!problem.c.deterministic) return true;
  Case noise;
  noise.lengths = {700, 300, 900};
  noise.heads = 2;
  Problem other(noise, 3, true);
  other.add_workspace();
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  other.params.stream = stream;
  cuda::plan_attention(other.params);
  const auto call = [&](int noisy) {
    problem.poison();
    check(cudaDeviceSynchronize(), "poison");
    for (int i = 0; i < noisy; ++i) cuda::attention_backward(other.params);
    cuda::plan_attention(problem.params);
    cuda::attention_backward(problem.params);
    check(cudaDeviceSynchronize(), "attention");
    return gradient_bytes(problem);
  };
  const std::vector<char> first = call(0);
  int different = 0;
  for (int i = 0; i < 20; ++i) different += call(i % 5) != first ? 1 : 0;
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  if (different > 0) {
    std::printf("  %s: %d of 20 calls gave other bits WRONG\n", problem.c.name.c_str(), different);
  }
  return different == 0;
}

int test() {
  const std::vector<int> odd = {1, 65, 0, 130, 64, 200, 3, 128, 0, 257, 90};
  int failures = 0;
  int cases = 0;
  const auto run_mode = [&](const Case& c) {
    Problem problem(c, 31 + static_cast<std::uint64_t>(cases), false);
    problem.add_workspace();
    cuda::plan_attention(problem.params);
    // Twice: the work list must be good for more than one call.
    cuda::attention_forward(problem.params);
    problem.poison();
    cuda::attention_forward(problem.params);
    cuda::attention_backward(problem.params);
    check(cudaDeviceSynchronize(), c.name.c_str());
    if (!verify(problem, true, 1 << 30, false) || !repeats(problem)) ++failures;
    ++cases;
  };
  const auto run = [&](Case c) {
    run_mode(c);
    c.deterministic = true;
    c.name += " deterministic";
    run_mode(c);
  };
  for (const int width : {128, 64, 32, 16, 48, 96, 200, 256}) {
    for (const int bias : {0, 3}) {
      Case c;
      c.name = "width " + std::to_string(width) + " bias " + std::to_string(bias);
      c.lengths = odd;
      c.heads = 3;
      c.query_width = c.value_width = width;
      c.position = bias & 1;
      c.time = bias & 2;
      c.alpha = 0.7;
      run(c);
    }
  }
  Case c;
  c.lengths = {300, 517, 1000, 40};
  c.heads = 2;
  c.query_width = 64;
  c.value_width = 128;
  c.name = "dq 64 dv 128";
  run(c);
  c.position = true;
  c.name = "position only";
  run(c);
  c.position = false;
  c.time = true;
  c.name = "time only";
  run(c);
  c.times = Case::Times::kMilliseconds;
  c.name = "times times 3";
  run(c);
  c.times = Case::Times::kUnsorted;
  c.name = "unsorted times";
  run(c);
  c.times = Case::Times::kWide;
  c.name = "times over 2^32";
  run(c);
  c = {};
  c.name = "empty batch";
  c.lengths = {0, 0};
  run(c);
  c.name = "one token";
  c.lengths = {1};
  c.position = c.time = true;
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

int time(const std::vector<std::string>& options) {
  Case c;
  std::string bias = "none";
  std::string pass = "both";
  std::string json;
  bool table_gradients = true;
  for (std::size_t i = 0; i + 1 < options.size(); i += 2) {
    const std::string& key = options[i];
    const std::string& value = options[i + 1];
    if (key == "--lengths") {
      c.lengths = read_lengths(value);
      if (c.name.empty()) c.name = value;
    } else if (key == "--heads") {
      c.heads = std::stoi(value);
    } else if (key == "--head-dim") {
      c.query_width = c.value_width = std::stoi(value);
    } else if (key == "--bias") {
      bias = value;
    } else if (key == "--pass") {
      pass = value;
    } else if (key == "--name") {
      c.name = value;
    } else if (key == "--table-gradients") {
      table_gradients = value == "yes";
    } else if (key == "--deterministic") {
      c.deterministic = value == "yes";
    } else if (key == "--times") {
      TGR_CHECK(value == "sorted" || value == "unsorted", "times '", value,
                "', wanted sorted or unsorted");
      if (value == "unsorted") c.times = Case::Times::kUnsorted;
    } else if (key == "--json") {
      json = value;
    } else {
      TGR_CHECK(false, "unknown option ", key);
    }
  }
  c.position = bias == "position" || bias == "both";
  c.time = bias == "time" || bias == "both";
  Problem problem(c, static_cast<std::uint64_t>(std::random_device{}()), true);
  problem.add_workspace();
  if (!table_gradients) problem.params.dposition = problem.params.dtime = nullptr;
  const AttentionParams& p = problem.params;
  const bool backward = pass == "both";
  cuda::plan_attention(p);
  cuda::attention_forward(p);
  if (backward) cuda::attention_backward(p);
  check(cudaDeviceSynchronize(), "attention");
  if (!verify(problem, backward, 2000, false)) return 1;

  double pairs = 0;
  for (const int n : c.lengths) pairs += 0.5 * n * (n + 1.0);
  const double flops = pairs * c.heads * 2.0 * (c.query_width + c.value_width);
  const double plan_ms = median_ms([&] { cuda::plan_attention(p); }, 21);
  const double forward_ms = median_ms([&] { cuda::attention_forward(p); }, 31);
  const double backward_ms = backward ? median_ms([&] { cuda::attention_backward(p); }, 21) : 0;
  const double forward_rate = flops / forward_ms * 1e-9;
  const double backward_rate = backward ? 2.5 * flops / backward_ms * 1e-9 : 0;
  std::printf(
      "%-10s bias %-8s%s plan %.4f ms  forward %.4f ms %.1f TFLOP/s  backward %.4f ms %.1f TFLOP/s "
      " "
      "workspace %.1f MB\n",
      c.name.c_str(), bias.c_str(), c.deterministic ? " deterministic" : "", plan_ms, forward_ms,
      forward_rate, backward_ms, backward_rate, static_cast<double>(p.workspace_bytes) * 1e-6);
  if (!json.empty()) {
    std::FILE* file = std::fopen(json.c_str(), "a");
    TGR_CHECK(file != nullptr, "cannot write ", json);
    std::fprintf(file,
                 "{\"name\": \"%s\", \"bias\": \"%s\", \"deterministic\": %s, \"tokens\": %lld, "
                 "\"heads\": %d, \"width\": %d, "
                 "\"plan_ms\": %.5f, \"forward_ms\": %.5f, \"forward_tflops\": %.2f, "
                 "\"backward_ms\": %.5f, \"backward_tflops\": %.2f, \"workspace_bytes\": %zu}\n",
                 c.name.c_str(), bias.c_str(), c.deterministic ? "true" : "false",
                 static_cast<long long>(problem.tokens), c.heads, c.query_width, plan_ms,
                 forward_ms, forward_rate, backward_ms, backward_rate, p.workspace_bytes);
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace turbogr::bench

int main(int argc, char** argv) {
  const std::vector<std::string> options(argv + 1, argv + argc);
  try {
    if (!options.empty() && options[0] == "test") return turbogr::bench::test();
    if (!options.empty() && options[0] == "time") {
      return turbogr::bench::time({options.begin() + 1, options.end()});
    }
    std::fprintf(
        stderr,
        "usage: attention_bench test | time --lengths FILE|uniform:L:B|random:LOW:HIGH:B --heads H "
        "--head-dim D\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
  }
  return 2;
}
