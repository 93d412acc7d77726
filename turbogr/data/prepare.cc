#include "turbogr/data/prepare.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <optional>
#include <thread>

#include "turbogr/core/check.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/core/trace.h"
#include "turbogr/data/byte_source.h"
#include "turbogr/data/drop_repeats.h"
#include "turbogr/data/event_sort.h"
#include "turbogr/data/features/feature_text.h"
#include "turbogr/data/features/table_features.h"
#include "turbogr/data/features/table_files.h"
#include "turbogr/data/history_writer.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/kuairand_inputs.h"
#include "turbogr/data/label.h"
#include "turbogr/data/partial_folder.h"
#include "turbogr/data/prepare_parse.h"
#include "turbogr/data/row_numbering.h"
#include "turbogr/data/store.h"
#include "turbogr/data/store_writer.h"
#include "turbogr/data/yambda/yambda_inputs.h"

namespace turbogr::data {
namespace {

namespace fs = std::filesystem;

// Past a few, threads wait for the memory.
int usual_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

void write_item_ids(StoreWriter& writer, const SortedIds& ids, const Survivors* survivors) {
  IdStream stream(ids);
  for (std::int64_t i = 0; i < ids.count; ++i) {
    const bool stays = survivors == nullptr || survivors->has(i);
    if (ids.kind == IdKind::kString) {
      const std::string& id = stream.next_string();
      if (stays) writer.add_item_id(std::string_view(id));
    } else {
      const std::int64_t id = stream.next_integer();
      if (stays) writer.add_item_id(id);
    }
  }
}

// Copies a feature table as it is, unpacked; where it lies then.
fs::path copy_table(StoreWriter& writer, const fs::path& from, const std::string& name,
                    const std::string& key) {
  const std::string file = name + ".csv";
  Input input = open_input(from);
  FileWriter out(writer.folder() / file);
  std::vector<char> block(1 << 18);
  for (std::size_t count = 0; (count = input.bytes->read(block)) > 0;) {
    check_interrupt();
    out.append(block.data(), count);
  }
  out.close(/*sync=*/true);
  writer.adopt_side_table({.key = key,
                           .file = {.name = name,
                                    .file = file,
                                    .type = "csv",
                                    .bytes = out.bytes(),
                                    .checksum = out.checksum()}});
  return out.path();
}

// Those found among the logs, then those given.
std::vector<TableFile> all_tables(const std::vector<fs::path>& found,
                                  const std::vector<TableFile>& given) {
  std::vector<TableFile> tables;
  tables.reserve(found.size() + given.size());
  for (const fs::path& path : found) tables.push_back({.path = path, .name = path.string()});
  tables.insert(tables.end(), given.begin(), given.end());
  return tables;
}

// The copies, under the names of the originals.
std::vector<TableFile> copy_tables(StoreWriter& writer, std::vector<TableFile> tables,
                                   const std::string& key) {
  int copies = 0;
  for (TableFile& table : tables) {
    if (!table.kept) continue;
    const std::string name = key + "_features";
    table.path = copy_table(writer, table.path,
                            ++copies > 1 ? fmt::format("{}_{}", name, copies) : name, key);
  }
  return tables;
}

// The store is whole by now: nothing a table holds may undo it.
void remark_on_tables(const PrepareOptions& options, const std::vector<TableFile>& tables,
                      std::size_t found, const Store& store, PrepareReport& report) {
  // A table given for its features need not have titles.
  if (!options.item_features.empty()) return;
  std::vector<SideTable> copies = store.manifest().side_tables;
  std::erase_if(copies, [](const SideTable& copy) { return copy.key != "item"; });
  std::size_t copy = 0;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (!tables[i].kept) continue;
    const fs::path own_copy = store.folder() / copies[copy++].file.file;
    // KuaiRand's own have no titles, as everybody knows.
    if (options.format == LogFormat::kKuaiRand && i < found) continue;
    const fs::path table = tables[i].from_columns ? own_copy : tables[i].path;
    if (!fs::is_regular_file(table)) continue;
    std::string unused;
    try {
      unused = ItemTitles::unused_of(table, store);
    } catch (const Error& error) {
      unused = error.what();
    }
    if (!unused.empty()) {
      report.remarks.push_back(fmt::format("item table '{}': {}", tables[i].name, unused));
    }
  }
}

// The last of the signals are labels. One that is the same everywhere is often misspelt.
void remark_on_labels(const PrepareOptions& options, std::span<const std::string> signals,
                      const StoreWriter& writer, std::vector<std::string>& remarks) {
  const std::vector<std::string>& labels = options.columns.labels;
  const std::size_t first = signals.size() - labels.size();
  for (std::size_t i = first; i < signals.size(); ++i) {
    const bool any = (writer.signals_of_any() >> i & 1) != 0;
    const bool all = (writer.signals_of_all() >> i & 1) != 0;
    if ((any && !all) || signals[i] == options.keep_signal) continue;
    remarks.push_back(fmt::format(
        "--label '{}' is set in {} of the {} events, so there is nothing to learn from it; compare "
        "what it asks for with the values of {}",
        signals[i], any ? "all" : "none", writer.num_events(),
        fmt::join(columns_of(parse_label(labels[i - first])), ", ")));
  }
}

PrepareReport prepare_or_run_out(PrepareOptions options) {
  TGR_CHECK(options.min_user >= 0 && options.min_item >= 0,
            "--min-user and --min-item cannot be negative");
  TGR_CHECK(options.threads >= 0, "--threads is ", options.threads,
            "; give 0 (one a core) or more");
  TGR_CHECK(!options.keep_items_without_events || !options.item_features.empty() ||
                options.format == LogFormat::kYambda,
            "--keep-items-without-events is about items that are known by their features alone; ",
            "name some with --item-features");
  TGR_CHECK(options.bad_rows.max_bad >= 0, "--max-bad is ", options.bad_rows.max_bad,
            "; give 0 or more");
  const std::int64_t begin_ns = Trace::now_ns();
  const auto elapsed = [&] { return static_cast<double>(Trace::now_ns() - begin_ns) * 1e-9; };
  PrepareReport report;
  if (options.format == LogFormat::kYambda) options = yambda_options(options, report.remarks);
  if (options.format == LogFormat::kKuaiRand) options = kuairand_options(options, report.remarks);
  Progress progress(options.show_progress);
  const MemoryPlan plan(options.memory_bytes);
  ThreadPool pool(options.threads > 0 ? options.threads : usual_threads());
  PartialFolder folder(options.out, options.overwrite);
  const fs::path work = folder.path() / "work";
  fs::create_directory(work);

  const TableFiles given = table_files(options, work, report.remarks);
  ParsedLog log = parse_logs(pool, options, given, plan, work, progress, report);
  report.parse_seconds = elapsed();

  RowNumbering numbering(pool, options, plan, log, work);
  numbering.number();
  report.repeated = drop_repeats(pool, options.repeats, numbering, log, plan, work);
  numbering.find_core();
  const CoreFilter* core = numbering.core() ? &*numbering.core() : nullptr;
  const std::int64_t num_users = core != nullptr ? core->users.count() : log.users.count;
  const std::int64_t num_items = core != nullptr ? core->items.count() : log.items.count;
  TGR_CHECK(num_users > 0, "no event is left: --min-user ", options.min_user, " and --min-item ",
            options.min_item, " take all of ", log.rows->size(), " away");

  const RowLayout layout = log.rows->layout();
  const std::int64_t num_rows = log.rows->size();
  std::optional<EventSort> sort;
  sort.emplace(
      pool, layout, plan.row_capacity(layout.stride()),
      SortRange{.num_users = num_users, .first_time = log.first_time, .last_time = log.last_time},
      work / "runs.tmp", plan.working);
  progress.begin("sorting", num_rows, "rows");
  std::int64_t kept = 0;
  if (numbering.done()) {
    kept = num_rows;
    sort->adopt(log.rows->release_memory(), static_cast<std::size_t>(kept));
  } else if (log.rows->in_memory()) {
    std::byte* const rows = log.rows->data();
    numbering.for_each_row([&](const std::byte* row) {
      std::byte* to = rows + layout.stride() * static_cast<std::size_t>(kept++);
      if (to != row) std::memmove(to, row, layout.stride());
    });
    sort->adopt(log.rows->release_memory(), static_cast<std::size_t>(kept));
  } else {
    numbering.for_each_row([&](const std::byte* row) {
      std::memcpy(sort->add(), row, layout.stride());
      if ((++kept & 0xfff) == 0) progress.update(kept);
    });
    log.rows->remove_file();
  }
  report.filtered = num_rows - kept;
  numbering.release();

  StoreWriter writer(std::move(folder), {.time_unit = log.time_unit,
                                         .num_items = num_items,
                                         .user_ids = log.users.kind,
                                         .item_ids = log.items.kind,
                                         .signals = log.signal_names,
                                         .numbers = log.number_names,
                                         .unmet_items = options.keep_items_without_events});
  progress.begin("writing", kept, "rows");
  {
    HistoryWriter histories(pool, writer, log, core != nullptr ? &core->users : nullptr);
    log.event_features->open(writer);
    sort->drain_blocks([&](const SortedRows& rows) {
      histories.add(rows);
      progress.update(writer.num_events());
    });
    report.sorted_runs = sort->num_runs();
    sort.reset();  // its memory is for the tables now
  }
  write_item_ids(writer, log.items, core != nullptr ? &core->items : nullptr);
  for (const auto owner : {FeatureOwner::kUser, FeatureOwner::kItem}) {
    const bool items = owner == FeatureOwner::kItem;
    const std::vector<TableFile> tables =
        copy_tables(writer, all_tables(items ? log.item_tables : log.user_tables, given.of(owner)),
                    std::string(name_of(owner)));
    write_table_features(
        pool, writer, owner, tables,
        feature_requests(items ? options.item_features : options.user_features, owner, tables),
        plan.working, work, report.remarks);
  }
  remark_on_labels(options, log.signal_names, writer, report.remarks);
  report.users = writer.num_users();
  report.items = num_items;
  report.events = writer.num_events();
  fs::remove_all(work);
  writer.finish();
  const Store store(options.out);
  report.items_without_events = store.manifest().items_without_events;
  remark_on_tables(options, all_tables(log.item_tables, given.items), log.item_tables.size(), store,
                   report);
  for (const Feature& feature : store.manifest().features) {
    report.features.push_back(words_for(feature, store.manifest().rows_of(feature.owner)));
  }
  const auto offsets = store.offsets();
  for (std::size_t user = 1; user < offsets.size(); ++user) {
    report.short_users += offsets[user] - offsets[user - 1] < kMinHistory ? 1 : 0;
  }
  report.seconds = elapsed();
  return report;
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options) {
  try {
    return prepare_or_run_out(options);
  } catch (const std::bad_alloc&) {
    detail::throw_error("the system has less memory to give than --memory ",
                        options.memory_bytes >> 20, "MB; give a smaller one");
  }
}

}  // namespace turbogr::data
