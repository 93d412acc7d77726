// `turbogr data prepare`: raw logs to a sequence store; `data merge`: stores of parts of a log to
// one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/holdout.h"
#include "turbogr/data/interrupt.h"
#include "turbogr/data/log_layout.h"
#include "turbogr/data/merge_stores.h"
#include "turbogr/data/prepare.h"

namespace turbogr::apps {
namespace {

struct Flags {
  data::PrepareOptions options;
  std::string format = "csv";
  std::string memory = "2GB";
  std::string on_error = "stop";
  bool drop_repeated_events = false;
  bool drop_repeated_items = false;
  std::string shard;
  std::vector<std::filesystem::path> parts;  // of a merge
  std::vector<std::filesystem::path> user_tables, item_tables;
};

// "256MB", "2 GB", "1.5GiB" or plain bytes; decimal and binary prefixes alike mean powers of 1024.
std::size_t parse_bytes(const std::string& text) {
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  std::string unit = text.substr(used);
  while (!unit.empty() && unit[0] == ' ') unit.erase(0, 1);
  double scale = -1;
  for (const auto& [names, factor] :
       std::initializer_list<std::pair<std::vector<std::string>, double>>{
           {{"", "B"}, 1},
           {{"K", "KB", "KiB", "kB", "k"}, 0x1p10},
           {{"M", "MB", "MiB"}, 0x1p20},
           {{"G", "GB", "GiB"}, 0x1p30},
           {{"T", "TB", "TiB"}, 0x1p40}}) {
    for (const std::string& name : names) {
      if (unit == name) scale = factor;
    }
  }
  TGR_CHECK(used > 0 && scale > 0 && value > 0 && value * scale < 0x1p60, "'", text,
            "' is not an amount of memory; write 256MB or 2GB");
  const auto bytes = static_cast<std::size_t>(value * scale);
  TGR_CHECK(bytes >= std::size_t{64} << 20, "'", text, "' is too little; 64MB is the least");
  return bytes;
}

// The lists stand in the code that looks for them, so the help cannot fall behind.
std::string usual_names_help() {
  std::string text =
      "Columns are found by these names, upper or lower case, unless options name them:\n";
  for (const data::UsualNames& usual : data::usual_names()) {
    text += fmt::format("  {:<8} {}\n", usual.what, fmt::join(usual.names, ", "));
  }
  return text + "A header of RecBole's (user_id:token, rating:float) is known as well.";
}

// `--signal-columns a b` makes b an input.
void check_inputs_are_there(const data::PrepareOptions& options) {
  if (options.columns.signals.empty() && options.columns.numbers.empty()) return;
  for (const std::filesystem::path& input : options.inputs) {
    TGR_CHECK(input == "-" || std::filesystem::exists(input), "there is no input '", input.string(),
              "'; if it is a column, join columns with commas: --signal-columns a,b");
  }
}

struct Shard {
  int index = 0, count = 1;  // from 0
};

// "2/8": the second of eight.
Shard parse_shard(const std::string& text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const std::from_chars_result first = std::from_chars(text.data(), end, shard.index);
  std::from_chars_result second = first;
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    second = std::from_chars(first.ptr + 1, end, shard.count);
  }
  TGR_CHECK(second.ec == std::errc() && second.ptr == end && first.ptr != end && shard.index >= 1 &&
                shard.index <= shard.count,
            "'", text, "' is no share; write 1/8 for the first of eight");
  --shard.index;
  return shard;
}

void take_shard(const std::string& text, data::PrepareOptions& options) {
  if (text.empty()) return;
  const Shard shard = parse_shard(text);
  options.shard = shard.index;
  options.shards = shard.count;
  check_usage(options.min_user == 0 && options.min_item == 0 &&
                  options.repeats == data::Repeats::kKeep && options.user_tables.empty() &&
                  options.item_tables.empty() && !options.keep_items_without_events,
              "--shard ", text, " with a k-core, --deduplicate or tables: a part does not know of ",
              "the others; give them to `turbogr data merge`");
}

void run(Flags& flags, bool merges) {
  data::PrepareOptions& options = flags.options;
  options.user_tables.assign(flags.user_tables.begin(), flags.user_tables.end());
  options.item_tables.assign(flags.item_tables.begin(), flags.item_tables.end());
  if (!merges) {
    check_inputs_are_there(options);
    options.format = data::log_format_from_name(flags.format);
  }
  options.memory_bytes = parse_bytes(flags.memory);
  options.bad_rows.skip = flags.on_error == "skip";
  options.repeats = flags.drop_repeated_items    ? data::Repeats::kDropItems
                    : flags.drop_repeated_events ? data::Repeats::kDropEvents
                                                 : data::Repeats::kKeep;
  if (!merges) take_shard(flags.shard, options);
  options.show_progress = isatty(STDERR_FILENO) != 0;
  // So that --memory bounds the process too: freed blocks go back to the system, and one arena
  // keeps the address space small.
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 16);
  const data::InterruptGuard guard;
  const data::PrepareReport report =
      merges ? data::merge_stores(flags.parts, options) : data::prepare(options);
  for (const std::string& remark : report.remarks) log::warn("{}", remark);
  fmt::print("{}: {} users, {} items, {} events\n", options.out.string(), report.users,
             report.items, report.events);
  if (report.items_without_events > 0) {
    fmt::print("{} of the items have no events and are kept for their features\n",
               report.items_without_events);
  }
  const std::string sorted = report.sorted_runs == 0
                                 ? std::string("in memory")
                                 : fmt::format("{} sorted runs", report.sorted_runs);
  if (merges) {
    fmt::print("merged {} stores in {:.2f} s, {}\n", flags.parts.size(), report.seconds, sorted);
  } else {
    fmt::print("read {} rows, {:.1f} MB in {:.2f} s ({:.0f} MB/s), {}\n", report.rows,
               static_cast<double>(report.input_bytes) * 1e-6, report.seconds,
               static_cast<double>(report.input_bytes) * 1e-6 / report.seconds, sorted);
  }
  for (const std::string& feature : report.features) fmt::print("{}\n", feature);
  if (report.short_users > 0) {
    fmt::print(
        "{} of {} users have fewer than {} events, the least that training and evaluation need: "
        "they take no part (--min-user {} leaves them out)\n",
        report.short_users, report.users, data::kMinHistory, data::kMinHistory);
  }
  if (report.bad_rows + report.without_signal + report.repeated + report.filtered == 0) return;
  fmt::print("left out: {} bad, {} without {}, {} repeated, {} by the k-core\n", report.bad_rows,
             report.without_signal,
             options.keep_signal.empty() ? "the signal" : options.keep_signal, report.repeated,
             report.filtered);
}

// What concerns all events together: of prepare and of merge.
void add_common_options(Command& command, Flags& flags) {
  data::PrepareOptions& options = flags.options;
  command.add_option("--out", options.out, "the store to make")->required();
  command.add_option("--memory", flags.memory, "memory to use at most, whatever the input")
      ->check(can_be_read(parse_bytes))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "threads to use; 0: one a core, up to 8")
      ->capture_default_str();
  command.add_flag("--overwrite", options.overwrite, "replace a store that is there");
  command.add_option("--min-user", options.min_user, "k-core: keep users with so many events")
      ->check(is_not_negative());
  command.add_option("--min-item", options.min_item, "k-core: keep items with so many events")
      ->check(is_not_negative());
  command.add_flag("--deduplicate", flags.drop_repeated_events,
                   "of rows with the same user, item and time keep the first");
  command.add_flag("--deduplicate-items", flags.drop_repeated_items,
                   "of a user's events with the same item keep the first");
  command
      .add_option("--user-table", flags.user_tables,
                  "a table about users to keep, CSV or Parquet (a file, or a folder of them)")
      ->allow_extra_args(false);
  command
      .add_option("--item-table", flags.item_tables,
                  "a table about items to keep, likewise; `recommend` shows its titles")
      ->allow_extra_args(false);
  const auto features = [&](const char* name, std::vector<std::string>& value, const char* help) {
    command.add_option(name, value, help)->delimiter(',')->allow_extra_args(false);
  };
  features("--user-features", options.user_features,
           "columns of the user tables to keep as features, joined with commas: NAME, "
           "NAME:category, NAME:number, NAME:bag or NAME:bag:SEPARATOR; auto knows KuaiRand's and "
           "MovieLens'");
  command.add_flag(
      "--keep-items-without-events", options.keep_items_without_events,
      "keep the items of tables with --item-features that no event is about: the model "
      "can recommend them by their features (recommend --untrained-items)");
  features("--item-features", options.item_features,
           "columns of the item tables to keep as features, likewise; auto knows KuaiRand's and "
           "MovieLens'");
}

}  // namespace

void add_data_prepare(Command& app) {
  auto* command = app.add_subcommand("prepare", "Turn raw logs into a sequence store");
  auto flags = std::make_shared<Flags>();
  data::PrepareOptions& options = flags->options;
  command
      ->add_option(
          "INPUT", options.inputs,
          "log files, plain, .gz or .zst; '-' is standard input; a folder stands for the files in "
          "it (with kuairand, movielens and yambda the published ones, with RecBole's .inter also "
          ".item "
          "and .user, with parquet all below it, hive partitions as columns)")
      ->required();
  add_common_options(*command, *flags);
  command->add_option("--format", flags->format, "kuairand, movielens, yambda, csv or parquet")
      ->check(is_one_of({"kuairand", "movielens", "yambda", "csv", "parquet"}))
      ->capture_default_str();
  command
      ->add_option("--shard", flags->shard,
                   "I/N: of the logs only the I-th of N shares, for `data merge`; give the options "
                   "about all events (k-core, tables, --deduplicate) there")
      ->check(can_be_read(parse_shard));
  command->add_option("--keep-signal", options.keep_signal, "keep only rows with this signal");
  command
      ->add_option(
          "--label", options.columns.labels,
          "make a signal of other columns: \"rating>=4\" (also >, <=, <, ==, !=), "
          "\"event==purchase\", several joined by &, of one with ! before it the opposite; "
          "that is its name, or give one: \"skip=event==listen&!played>=50\"; may be given "
          "several times")
      ->allow_extra_args(false);
  command->add_option("--user-column", options.columns.user, "name, or number from 1");
  command->add_option("--item-column", options.columns.item, "name, or number from 1");
  command->add_option("--time-column", options.columns.time,
                      "name, number from 1, or none: the order of the file");
  command
      ->add_option("--signal-columns", options.columns.signals,
                   "columns to keep as signal bits, joined with commas (a,b), or none")
      ->delimiter(',')
      ->allow_extra_args(false);  // what follows may be an input
  command
      ->add_option("--number-columns", options.columns.numbers,
                   "columns to keep as numbers, joined with commas (a,b), or none")
      ->delimiter(',')
      ->allow_extra_args(false);  // what follows may be an input
  command->add_option("--delimiter", options.columns.delimiter,
                      "one or two characters, or tab; found by itself when not given");
  command->add_option("--header", options.columns.header, "auto, yes or no")
      ->check(is_one_of({"auto", "yes", "no"}))
      ->capture_default_str();
  command->add_option("--time-unit", options.time_unit, "auto, s or ms, for whole-number times")
      ->check(is_one_of({"auto", "s", "ms"}))
      ->capture_default_str();
  command->add_option("--ids", options.ids, "auto, integer or string")
      ->check(is_one_of({"auto", "integer", "string"}))
      ->capture_default_str();
  command->add_option("--on-error", flags->on_error, "stop at a bad row, or skip it")
      ->check(is_one_of({"stop", "skip"}))
      ->capture_default_str();
  command->add_option("--max-bad", options.bad_rows.max_bad, "with skip: give up past so many")
      ->check(is_not_negative())
      ->capture_default_str();
  command
      ->add_option("--event-features", options.columns.features,
                   "columns of the log to keep as features of the events, as --user-features")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->footer(usual_names_help());
  command->callback([flags] { run(*flags, false); });
}

void add_data_merge(Command& app) {
  auto* command = app.add_subcommand(
      "merge", "Join stores of parts of one log, made by `data prepare --shard`, into one");
  auto flags = std::make_shared<Flags>();
  command->add_option("STORE", flags->parts, "the parts, the first shard first")->required();
  add_common_options(*command, *flags);
  command->callback([flags] { run(*flags, true); });
}

}  // namespace turbogr::apps
