// `turbogr bench data`: how fast prepare turns CSV into a store, in memory and out of core. The
// input is made on the spot, in KuaiRand's columns; the two stores must be the same.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/command_line.h"
#include "turbogr/core/check.h"
#include "turbogr/core/philox.h"
#include "turbogr/core/simd_level.h"
#include "turbogr/core/trace.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/csv_reader.h"
#include "turbogr/data/file.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/prepare.h"
#include "turbogr/data/store.h"

namespace turbogr::apps {
namespace {

namespace fs = std::filesystem;

struct Flags {
  double megabytes = 256;
  int repeats = 3;
  std::string folder;
};

// Goes with its content.
class Scratch {
 public:
  explicit Scratch(const std::string& under)
      : path_((under.empty() ? fs::temp_directory_path() : fs::path(under)) /
              fmt::format("turbogr-bench-{}", Trace::now_ns())) {
    fs::create_directory(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

void write_log(const fs::path& path, std::int64_t bytes) {
  data::FileWriter out(path, std::size_t{1} << 20);
  const std::string header =
      "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
      "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
      "is_profile_enter,is_rand,tab\n";
  out.append(header.data(), header.size());
  PhiloxStream random(1);
  fmt::memory_buffer line;
  while (out.bytes() < bytes) {
    const std::uint64_t bits = random.next_u64();
    const double place = random.uniform();
    line.clear();
    fmt::format_to(std::back_inserter(line),
                   "{},{},20220408,1800,{},{},{},0,0,0,0,{},{},{},0,0,0,0,{}\n",
                   random.below(27285), static_cast<int>(place * place * place * 3e6),
                   1649400000000 + static_cast<std::int64_t>(random.below(2'600'000'000)), bits & 1,
                   (bits >> 1) % 50 == 0 ? 1 : 0, (bits >> 8) & 1, (bits >> 16) % 60000,
                   (bits >> 32) % 200000, (bits >> 50) % 5);
    out.append(line.data(), line.size());
  }
  out.close(/*sync=*/false);
}

struct Timing {
  double wall = 0;
  double cpu = 0;  // of this process: what is left when others load the machine
};

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Timing best_of(int repeats, const std::function<void()>& body) {
  Timing best{.wall = 1e30, .cpu = 1e30};
  for (int i = 0; i < repeats; ++i) {
    data::check_interrupt();
    const double cpu = cpu_seconds();
    const std::int64_t begin = Trace::now_ns();
    body();
    best.wall = std::min(best.wall, static_cast<double>(Trace::now_ns() - begin) * 1e-9);
    best.cpu = std::min(best.cpu, cpu_seconds() - cpu);
  }
  return best;
}

void print_line(const char* name, std::int64_t bytes, const Timing& timing, double baseline) {
  const double mb = static_cast<double>(bytes) * 1e-6;
  fmt::print("{:<26} {:>8.2f} s {:>8.0f} MB/s   {:>6.2f} s of a core {:>8.0f} MB/s a core {:>7}\n",
             name, timing.wall, mb / timing.wall, timing.cpu, mb / timing.cpu,
             baseline > 0 ? fmt::format("{:.2f}x", timing.cpu / baseline) : "");
}

bool same_stores(const fs::path& a, const fs::path& b) {
  const data::Store left(a);
  const data::Store right(b);
  left.verify();
  right.verify();
  return left.manifest().to_json() == right.manifest().to_json();
}

void run(const Flags& flags) {
  const data::InterruptGuard guard;
  const Scratch scratch(flags.folder);
  const fs::path log = scratch / "log_standard_bench.csv";
  write_log(log, static_cast<std::int64_t>(flags.megabytes * 1e6));
  const auto bytes = static_cast<std::int64_t>(fs::file_size(log));
  fmt::print("{}, {:.0f} MB of CSV, best of {}\n", cpu_model(), static_cast<double>(bytes) * 1e-6,
             flags.repeats);

  std::vector<char> block(1 << 20);
  print_line("read only (the peak)", bytes,
             best_of(flags.repeats,
                     [&] {
                       data::Input input = data::open_input(log);
                       while (input.bytes->read(block) > 0) {
                       }
                     }),
             0);
  std::int64_t fields = 0;
  print_line("read and split", bytes,
             best_of(flags.repeats,
                     [&] {
                       data::Input input = data::open_input(log);
                       data::CsvReader reader(*input.bytes, input.name, {});
                       while (reader.next())
                         fields += static_cast<std::int64_t>(reader.fields().size());
                     }),
             0);
  TGR_CHECK(fields % 19 == 0, "the split gave ", fields, " fields");

  data::PrepareOptions options{.format = data::LogFormat::kKuaiRand, .inputs = {log}};
  const auto prepare = [&](const char* name, std::size_t memory) {
    options.out = scratch / name;
    options.memory_bytes = memory;
    options.overwrite = true;
    return data::prepare(options);
  };
  std::size_t runs = 0;
  const Timing memory =
      best_of(flags.repeats, [&] { runs = prepare("memory", std::size_t{64} << 30).sorted_runs; });
  TGR_CHECK(runs == 0, "the run in memory made ", runs, " sorted runs");
  print_line("prepare, in memory", bytes, memory, memory.cpu);
  // A fifth of what all rows need, so that there are at least five runs to merge.
  const std::size_t little =
      std::max<std::size_t>(static_cast<std::size_t>(bytes) / 6, std::size_t{49} << 20);
  const Timing disk = best_of(flags.repeats, [&] { runs = prepare("disk", little).sorted_runs; });
  print_line(fmt::format("prepare, {} runs", runs).c_str(), bytes, disk, memory.cpu);
  TGR_CHECK(same_stores(scratch / "memory", scratch / "disk"),
            "the stores made in and out of memory differ");
  fmt::print("both stores are the same, every byte verified\n");
}

}  // namespace

void add_bench_data(Command& app) {
  auto* command = app.add_subcommand("data", "Speed of `data prepare`, in memory and out of core");
  auto flags = std::make_shared<Flags>();
  command->add_option("--megabytes", flags->megabytes, "size of the CSV it makes")
      ->capture_default_str()
      ->check(is_positive());
  command->add_option("--repeats", flags->repeats, "the best of so many counts")
      ->capture_default_str()
      ->check(is_positive());
  command->add_option("--folder", flags->folder, "where to put files (default: the system's)");
  command->callback([flags] { run(*flags); });
}

}  // namespace turbogr::apps
