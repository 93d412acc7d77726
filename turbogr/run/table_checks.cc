#include "turbogr/run/table_checks.h"

#include <fmt/format.h>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/core/progress.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/run/run_plan.h"

namespace turbogr::run {
std::string too_large_tables(const std::vector<std::string>& names,
                             const std::vector<embedding::TableOptions>& tables,
                             const TablePlace& place, std::size_t available) {
  std::size_t all = 0, largest = 0, largest_bytes = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::size_t bytes = embedding::shard_bytes(tables[t], place.ranks.layout());
    all += bytes;
    if (bytes <= largest_bytes) continue;
    largest = t;
    largest_bytes = bytes;
  }
  if (detail::fits(all, available)) return "";
  return fmt::format(
      "[tables.{}] has {} rows of {} numbers, which with the optimiser's state take {:.1f} MiB a "
      "rank (all tables together {:.1f} MiB), and {:.1f} MiB of the memory of {} are free; lower "
      "its rows, take dtype = \"bf16\" or an optimiser with less state, or share it out over more "
      "ranks",
      names[largest], grouped_text(tables[largest].rows), tables[largest].width, mib(largest_bytes),
      mib(all), mib(available), place.memory == Device::kCuda ? "the GPU" : "this machine");
}

void check_tables(const Config& config, const std::vector<std::string>& names,
                  const std::vector<embedding::TableOptions>& tables, const TablePlace& place) {
  const bool on_gpu = place.memory == Device::kCuda;
  if (on_gpu && device_memory().total == 0) return;  // a dry run where there is none
  const std::size_t available = on_gpu ? device_memory().free : available_host_memory();
  const std::string large = too_large_tables(names, tables, place, available);
  if (large.empty()) return;
  TGR_CHECK(config.run.dry_run, large);
  // A plan for other ranks is one for other machines.
  if (config.dist.world == 0) log::warn("this machine cannot train it: {}", large);
}

}  // namespace turbogr::run
