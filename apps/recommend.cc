// `turbogr recommend`: the best k items for users of a store, or for a history given by hand.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "turbogr/core/check.h"
#include "turbogr/core/log.h"
#include "turbogr/data/field.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/store.h"
#include "turbogr/train/file.h"
#include "turbogr/train/history.h"
#include "turbogr/train/trained_model.h"

namespace turbogr::apps {
namespace {

struct RecommendOptions {
  std::string checkpoint;
  std::string store;
  std::string user;
  std::string users;
  std::string history;
  bool all = false;
  std::optional<std::int64_t> at;
  std::int64_t k = 10;
  std::string out;
  std::string titles;
  int threads = 0;
};

constexpr std::int64_t kTokensAtOnce = 16384;

// The lines of a text file that are not empty, with their numbers from 1.
std::vector<std::pair<std::int64_t, std::string>> lines_of(const std::string& path,
                                                           const char* wanted) {
  std::ifstream in(path);
  TGR_CHECK(in.good() && !std::filesystem::is_directory(path), "cannot read '", path,
            "'; give a file with ", wanted);
  std::vector<std::pair<std::int64_t, std::string>> lines;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    if (++number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte-order mark
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.emplace_back(number, line);
  }
  return lines;
}

std::int64_t user_index(const data::Store& store, const std::string& id) {
  const std::optional<std::int64_t> index = store.user_ids().find(std::string_view(id));
  TGR_CHECK(index.has_value(), "no user '", data::printable(id, 80), "' in the store '",
            store.folder().string(), "'");
  return *index;
}

std::vector<std::int64_t> chosen_users(const RecommendOptions& options, const data::Store& store) {
  std::vector<std::int64_t> users;
  if (options.all) {
    for (std::int64_t user = 0; user < store.num_users(); ++user) {
      if (store.offsets()[static_cast<std::size_t>(user) + 1] >
          store.offsets()[static_cast<std::size_t>(user)]) {
        users.push_back(user);
      }
    }
  } else if (!options.users.empty()) {
    for (const auto& [number, line] : lines_of(options.users, "one user id a line")) {
      try {
        users.push_back(user_index(store, line));
      } catch (const Error& error) {
        detail::throw_error(options.users, ":", number, ": ", error.what());
      }
    }
    TGR_CHECK(!users.empty(), "'", options.users, "' names no user; give one id a line");
  } else {
    users.push_back(user_index(store, options.user));
  }
  return users;
}

// Lines "item" or "item,time", oldest first; all of them with a time or none.
std::vector<train::HistoryEvent> read_history(const std::string& path, const data::Store& store) {
  std::vector<train::HistoryEvent> events;
  bool timed = false;
  for (const auto& [number, line] : lines_of(path, "one 'item' or 'item,time' a line")) {
    const std::size_t comma = line.find(',');
    const std::string item = line.substr(0, comma);
    const auto index = store.item_ids().find(std::string_view(item));
    TGR_CHECK(index.has_value(), path, ":", number, ": no item '", data::printable(item, 80),
              "' in the store");
    const bool has_time = comma != std::string::npos;
    TGR_CHECK(events.empty() || has_time == timed, path, ":", number, ": '",
              data::printable(line, 80), "' has ", has_time ? "a" : "no",
              " time, unlike the lines before it; give every line one, or none");
    timed = has_time;
    std::int64_t time = events.empty() ? 0 : events.back().time;
    if (has_time) {
      const char* begin = line.data() + comma + 1;
      const char* end = line.data() + line.size();
      const auto result = std::from_chars(begin, end, time);
      TGR_CHECK(result.ec == std::errc() && result.ptr == end, path, ":", number, ": time '",
                data::printable(std::string_view(line).substr(comma + 1), 80),
                "' is not a whole number in the store's unit");
      TGR_CHECK(events.empty() || time >= events.back().time, path, ":", number, ": time ", time,
                " comes before the one above it; list the oldest event first");
    }
    events.push_back({*index, time});
  }
  return events;
}

class Writer {
 public:
  Writer(const std::string& path, const data::Store& store, const data::ItemTitles& titles)
      : store_(store), titles_(titles), path_(path) {
    json_ = path.size() > 6 && path.compare(path.size() - 6, 6, ".jsonl") == 0;
    if (!path.empty()) {
      target_.emplace(path);
      file_.open(target_->writing());
      TGR_CHECK(file_.good(), "cannot write '", path,
                "'; check that the folder exists and can be written");
      if (!json_) file_ << "user,place,item,score\n";
    }
  }

  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // `recent` is shown to people only: the last items of the history, newest first.
  void write(const std::string& user, const std::vector<std::string>& recent,
             const std::vector<train::Recommendation>& list) {
    ++users_;
    if (path_.empty()) {
      fmt::print("user {}, recently {}\n", user, fmt::join(recent, titles_.empty() ? ", " : "; "));
      for (std::size_t i = 0; i < list.size(); ++i) {
        fmt::print("{:>4}  {:<20} {:.4f}", i + 1, store_.item_ids().text(list[i].item),
                   list[i].score);
        const std::string_view title = titles_.text(list[i].item);
        fmt::print("{}{}\n", title.empty() ? "" : "  ", title);
      }
    } else if (json_) {
      nlohmann::json items = nlohmann::json::array();
      for (const auto& entry : list) {
        items.push_back({{"item", store_.item_ids().text(entry.item)}, {"score", entry.score}});
        const std::string_view title = titles_.text(entry.item);
        if (!title.empty()) items.back()["title"] = title;
      }
      // Ids are whatever bytes the log had; what is no UTF-8 in them is replaced.
      file_ << nlohmann::json({{"user", user}, {"items", items}})
                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
            << "\n";
    } else {
      for (std::size_t i = 0; i < list.size(); ++i) {
        file_ << fmt::format("{},{},{},{:.6f}\n", csv_field(user), i + 1,
                             csv_field(store_.item_ids().text(list[i].item)), list[i].score);
      }
    }
  }

  void finish() {
    if (path_.empty()) return;
    file_.close();
    TGR_CHECK(!file_.fail(), "cannot write '", path_, "'; is the disk full?");
    target_->put_in_place();
    log::info("{}: lists of {} users", path_, users_);
  }

 private:
  static std::string csv_field(const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
  }

  const data::Store& store_;
  const data::ItemTitles& titles_;
  std::string path_;
  std::ofstream file_;
  std::optional<OutputTarget> target_;
  std::int64_t users_ = 0;
  bool json_ = false;
};

// The newest items of sequence b, newest first.
std::vector<std::string> recent_items(const data::Store& store, const data::ItemTitles& titles,
                                      const data::Batch& batch, std::size_t b) {
  constexpr std::int64_t kShown = 5;
  std::vector<std::string> recent;
  for (std::int64_t i = batch.offsets[b + 1] - 1;
       i >= batch.offsets[b] && i >= batch.offsets[b + 1] - kShown; --i) {
    const std::int64_t item = batch.items[static_cast<std::size_t>(i)];
    recent.push_back(store.item_ids().text(item));
    if (!titles.text(item).empty()) recent.back() += fmt::format(" {}", titles.text(item));
  }
  return recent;
}

void run_recommend(const RecommendOptions& options) {
  const int ways = static_cast<int>(!options.user.empty()) +
                   static_cast<int>(!options.users.empty()) +
                   static_cast<int>(!options.history.empty()) + static_cast<int>(options.all);
  TGR_CHECK(ways <= 1, "recommend for whom? ", ways,
            " ways were named; give one of --user ID, --users FILE, --all and --history FILE");
  TGR_CHECK(ways == 1,
            "recommend for whom? Give one of --user ID, --users FILE, --all and --history FILE");
  TGR_CHECK(options.k >= 1, "k is ", options.k, "; give at least 1");
  const Checkpoint checkpoint = train::open_checkpoint(options.checkpoint);
  const Config config = parse_config(checkpoint.config(), checkpoint.folder() + "/config.toml");
  const data::Store store = train::open_store(config, options.store);
  train::TrainedModel model(checkpoint, store, options.threads);
  const train::HistoryOptions history = {.max_length = config.data.max_length,
                                         .milliseconds = config.model.time_unit == "milliseconds",
                                         .query_time = options.at};
  const std::int64_t k = std::min(options.k, store.num_items());
  if (k < options.k) {
    log::warn("--k {} is more than the {} items of the store: all of them are ranked", options.k,
              k);
  }
  const data::ItemTitles titles = options.titles.empty()
                                      ? data::ItemTitles::of(store)
                                      : data::ItemTitles::read(options.titles, store);
  Writer writer(options.out, store, titles);
  data::Batch batch;
  if (!options.history.empty()) {
    train::history_batch(store, read_history(options.history, store), history, batch);
    writer.write("history", recent_items(store, titles, batch, 0),
                 model.recommend(batch, k).front());
    writer.finish();
    return;
  }
  const std::vector<std::int64_t> users = chosen_users(options, store);
  // As many at once as the planned tokens hold: one when histories are long.
  const auto at_once =
      static_cast<std::size_t>(std::max<std::int64_t>(1, kTokensAtOnce / config.data.max_length));
  for (std::size_t first = 0; first < users.size(); first += at_once) {
    const std::size_t count = std::min(at_once, users.size() - first);
    train::history_batch(store, std::span(users).subspan(first, count), history, batch);
    const auto lists = model.recommend(batch, k);
    for (std::size_t i = 0; i < lists.size(); ++i) {
      writer.write(store.user_ids().text(users[first + i]), recent_items(store, titles, batch, i),
                   lists[i]);
    }
  }
  writer.finish();
}

}  // namespace

Command* add_recommend(Command& app) {
  auto options = std::make_shared<RecommendOptions>();
  Command* command = app.add_subcommand(
      "recommend", "The best items for users or a history, without those already met");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Run folder (its best, or newest where none is kept), checkpoint, or "
                   "RUN/checkpoints/latest")
      ->required();
  command->add_option("--store", options->store, "Store; default: the one it was trained on");
  command->add_option("--user", options->user, "One user's id");
  command->add_option("--users", options->users, "File with one user id a line");
  command->add_flag("--all", options->all, "Every user of the store");
  command->add_option("--history", options->history,
                      "File with one 'item' or 'item,time' a line, oldest first");
  command->add_option("--at", options->at,
                      "Time of the query, in the store's unit; default: the last event's");
  command->add_option("--k", options->k, "How many items")->capture_default_str();
  command->add_option("--out", options->out,
                      "Write CSV, or JSON lines when the name ends in .jsonl");
  command->add_option("--titles", options->titles,
                      "File with the items' titles; default: an item table of the store");
  command->add_option("--threads", options->threads, "Threads; 0: one a core")
      ->capture_default_str();
  command->callback([options] { run_recommend(*options); });
  return command;
}

}  // namespace turbogr::apps
