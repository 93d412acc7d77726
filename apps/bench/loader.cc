// `turbogr bench loader`: how many tokens a second the loader hands out.
#include "turbogr/data/loader.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "turbogr/core/check.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/data/synth.h"

namespace turbogr::apps {
namespace {

struct LoaderBench {
  std::string store;
  std::int64_t users = 1000;
  std::int64_t max_length = 2048;
  std::int64_t tokens = 65536;
  std::string long_history = "windows";
  int repeats = 5;
};

// A store for the length of the benchmark.
class SyntheticStore {
 public:
  explicit SyntheticStore(std::int64_t users) {
    std::string name = (std::filesystem::temp_directory_path() / "turbogr-bench-XXXXXX").string();
    TGR_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a folder in '",
              std::filesystem::temp_directory_path().string(), "'; set TMPDIR to one with room");
    folder_ = name;
    ThreadPool pool(0);
    write_synth_store(data::SynthWorld({.users = users}), pool, path());
  }
  ~SyntheticStore() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  SyntheticStore(const SyntheticStore&) = delete;
  SyntheticStore& operator=(const SyntheticStore&) = delete;
  std::filesystem::path path() const { return folder_ / "store"; }

 private:
  std::filesystem::path folder_;
};

// Best of the repeats, in tokens a second over whole epochs; the first epoch warms the page cache
// and is checked: every token once.
double tokens_per_second(const data::Store& store, const LoaderBench& bench, int threads) {
  data::Loader loader(
      store, {.windows = {.max_length = bench.max_length,
                          .long_history = data::long_history_from_name(bench.long_history)},
              .plan = {.budget = data::BatchBudget::tokens(bench.tokens), .seed = 1},
              .threads = threads});
  data::Batch batch;
  double best = 0;
  for (int repeat = 0; repeat <= bench.repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t tokens = 0;
    while (loader.next(batch)) tokens += batch.num_tokens();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    TGR_CHECK(tokens == loader.num_tokens(), "the loader gave ", tokens, " tokens of ",
              loader.num_tokens());
    if (repeat > 0) best = std::max(best, static_cast<double>(tokens) / seconds.count());
  }
  return best;
}

// The peak: copying as many bytes as a batch holds from one place to another, in tokens a second.
double copied_tokens_per_second(const LoaderBench& bench) {
  constexpr std::int64_t kTokenBytes = 5 * 8;  // items, targets, two times, row keys
  const auto bytes = static_cast<std::size_t>(bench.tokens * kTokenBytes);
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  double best = 0;
  for (int repeat = 0; repeat < 20 * bench.repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    TGR_CHECK(to.back() == 1, "a copy that copied nothing");
    best = std::max(best, static_cast<double>(bench.tokens) / seconds.count());
  }
  return best;
}

void run_loader_bench(const LoaderBench& bench) {
  std::optional<SyntheticStore> synthetic;
  if (bench.store.empty()) synthetic.emplace(bench.users);
  const data::Store store(synthetic ? synthetic->path() : std::filesystem::path(bench.store));
  fmt::print("{}: {} users, {} events, windows of {} ({}), batches of {} tokens\n", cpu_model(),
             store.num_users(), store.num_events(), bench.max_length, bench.long_history,
             bench.tokens);
  const double peak = copied_tokens_per_second(bench);
  for (const int threads : {0, 1, 2}) {
    const double rate = tokens_per_second(store, bench, threads);
    const double a_core = rate / std::max(1, threads);
    fmt::print(
        "loader   {:<24} {:7.1f} M tokens/s   {:6.1f} M a core (wanted: 20)   {:3.0f} % of "
        "memcpy\n",
        threads == 0 ? "on the caller's thread" : fmt::format("{} in the background", threads),
        rate / 1e6, a_core / 1e6, 100 * a_core / peak);
  }
}

}  // namespace

void add_bench_loader(Command& bench) {
  auto* command = bench.add_subcommand("loader", "Tokens a second from a store in the page cache");
  auto options = std::make_shared<LoaderBench>();
  command->add_option("--store", options->store, "a sequence store (default: a synthetic one)");
  command->add_option("--users", options->users, "of the synthetic one")->capture_default_str();
  command->add_option("--max-length", options->max_length, "longest window")->capture_default_str();
  command->add_option("--tokens", options->tokens, "tokens a batch")
      ->check(is_positive())
      ->capture_default_str();
  command->add_option("--long-history", options->long_history, "last or windows")
      ->check(is_one_of({"last", "windows"}))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "epochs timed; the best counts")
      ->check(is_positive())
      ->capture_default_str();
  command->callback([options] { run_loader_bench(*options); });
}

}  // namespace turbogr::apps
