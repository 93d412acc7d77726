#include "apps/score_writer.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "apps/csv_field.h"
#include "apps/json_id.h"
#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/core/progress.h"

namespace turbogr::apps {

ScoreWriter::ScoreWriter(const std::string& path, bool json, std::vector<std::string> tasks)
    : form_(json ? Form::kJsonLines : Form::kText), tasks_(std::move(tasks)) {
  if (path.empty()) return;
  const std::string extension = std::filesystem::path(path).extension().string();
  TGR_CHECK(extension == ".csv" || extension == ".jsonl", "cannot write '", path,
            "': scores are written as .csv or .jsonl; end the name of --out in one of these");
  TGR_CHECK(!json || extension == ".jsonl", "--json and --out ", path,
            " ask for two formats; leave one of them out");
  form_ = extension == ".jsonl" ? Form::kJsonLines : Form::kCsv;
  target_.emplace(path);
  file_.emplace(target_->writing());
  if (form_ != Form::kCsv) return;
  std::string header = "user,place,item";
  for (const std::string& task : tasks_) header += "," + task;
  file_->write(header + "\n");
}

void ScoreWriter::write(const std::string& user, const std::vector<ScoredItem>& items,
                        const data::Store& store, const data::ItemTitles& titles) {
  std::string text;
  const auto out = std::back_inserter(text);
  if (form_ == Form::kJsonLines) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ScoredItem& each : items) {
      nlohmann::ordered_json scores;
      for (std::size_t k = 0; k < tasks_.size(); ++k) scores[tasks_[k]] = each.scores[k];
      list.push_back({{"item", item_json(store, each.item)}, {"scores", std::move(scores)}});
      const std::string_view title = titles.text(each.item);
      if (!title.empty()) list.back()["title"] = title;
    }
    text = nlohmann::ordered_json({{"user", user_json(store, user)}, {"items", std::move(list)}})
               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +  // titles
           "\n";
  } else if (form_ == Form::kText) {
    fmt::format_to(out, "user {}\n{:>4}  {:<20}", escaped(user), "", "item");
    for (const std::string& task : tasks_) fmt::format_to(out, " {:>12}", task);
    text += '\n';
  }
  for (std::size_t i = 0; i < items.size() && form_ != Form::kJsonLines; ++i) {
    const std::string item = store.item_ids().text(items[i].item);
    if (form_ == Form::kCsv) {
      fmt::format_to(out, "{},{},{}", csv_field(user), i + 1, csv_field(item));
      for (const float score : items[i].scores) fmt::format_to(out, ",{:.6f}", score);
    } else {
      fmt::format_to(out, "{:>4}  {:<20}", i + 1, escaped(item));
      for (const float score : items[i].scores) fmt::format_to(out, " {:>12.4f}", score);
      const std::string_view title = titles.text(items[i].item);
      if (!title.empty()) fmt::format_to(out, "  {}", title);
    }
    text += '\n';
  }
  if (file_) {
    file_->write(text);
  } else {
    print_text(stdout, text);
  }
}

void ScoreWriter::finish() {
  if (!file_) return;
  file_->finish();
  target_->put_in_place();
}

}  // namespace turbogr::apps
