#include "turbogr/run/table_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/host_memory.h"
#include "turbogr/core/log.h"
#include "turbogr/core/progress.h"
#include "turbogr/embedding/sharded_rows.h"
#include "turbogr/run/run_plan.h"

namespace turbogr::run {
namespace {

// The key that gave a table its format.
std::string dtype_key(const Config& config, const std::string& name) {
  const bool own = std::any_of(
      config.tables.begin(), config.tables.end(),
      [&](const TableConfig& table) { return table.name == name && !table.dtype.empty(); });
  return own ? "tables." + name + ".dtype" : "embedding.dtype";
}

void check_format(const Config& config, const std::string& name,
                  const embedding::TableOptions& table, const TablePlace& place) {
  if (table.dtype == DType::kF32) return;
  const std::string key = dtype_key(config, name);
  TGR_CHECK(!place.ranks.sharded() || place.ranks.replicas == embedding::ReplicaMode::kExact, key,
            " = \"", name_of(table.dtype),
            "\", and dist.replicas = \"average\": the mean of rows "
            "in 16 bits would lose what each group has learnt; use dist.replicas = \"exact\", or ",
            key, " = \"f32\"");
  TGR_CHECK(place.memory != Device::kPinned, key, " = \"", name_of(table.dtype),
            "\" halves a table on the device, and embedding.memory = \"host\" keeps it off; use ",
            key, " = \"f32\", or embedding.memory = \"device\"");
}

}  // namespace

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
  for (std::size_t t = 0; t < tables.size(); ++t) {
    check_format(config, names[t], tables[t], place);
  }
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
