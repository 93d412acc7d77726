#include "apps/list_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/csv_field.h"
#include "apps/json_id.h"
#include "turbogr/core/check.h"
#include "turbogr/core/escape.h"
#include "turbogr/data/arrow/parquet_calls.h"
#include "turbogr/data/field.h"

namespace turbogr::apps {
namespace {

constexpr std::size_t kBlock = 1 << 20;  // bytes written at a time

// The newest items of sequence b, newest first.
std::string recent_items(const data::Store& store, const data::ItemTitles& titles,
                         const data::Batch& batch, std::size_t b) {
  constexpr std::int64_t kShown = 5;
  std::string recent;
  const std::int64_t end = batch.offsets[b + 1];
  for (std::int64_t i = end - 1; i >= std::max(batch.offsets[b], end - kShown); --i) {
    const std::int64_t item = batch.items[static_cast<std::size_t>(i)];
    if (!recent.empty()) recent += titles.empty() ? ", " : "; ";
    recent += escaped(store.item_ids().text(item));
    if (!titles.text(item).empty()) recent += fmt::format(" {}", titles.text(item));
  }
  return recent;
}

}  // namespace

ListWriter::ListWriter(const std::string& path) : path_(path) {
  if (path.empty()) return;
  // A device or a pipe has no say in what it is given.
  const std::filesystem::file_status status = std::filesystem::status(path);
  const bool special = exists(status) && !is_regular_file(status) && !is_directory(status);
  const std::string extension = std::filesystem::path(path).extension().string();
  TGR_CHECK(
      special || extension == ".csv" || extension == ".jsonl" || extension == ".parquet",
      "cannot write '", path,
      "': lists are written as .csv, .jsonl or .parquet; end the name of --out in one of these");
  form_ = extension == ".jsonl" ? Form::kJsonLines : Form::kCsv;
  if (!special && extension == ".parquet") {
    form_ = Form::kParquet;
    data::parquet_calls();  // throws where there is no library for it
  }
  target_.emplace(path);
  if (form_ == Form::kParquet) return;
  file_.emplace(target_->writing());
  if (form_ == Form::kCsv) waiting_ = "user,place,item,score\n";
}

void ListWriter::write(const std::string& user, const data::Batch& batch, std::size_t b,
                       const std::vector<eval::Recommendation>& list, const data::Store& store,
                       const data::ItemTitles& titles) {
  ++users_;
  if (form_ == Form::kParquet) {
    write_rows(user, list, store);
  } else if (form_ == Form::kText) {
    fmt::print("user {}, recently {}\n", escaped(user), recent_items(store, titles, batch, b));
    for (std::size_t i = 0; i < list.size(); ++i) {
      fmt::print("{:>4}  {:<20} {:.4f}", i + 1, escaped(store.item_ids().text(list[i].item)),
                 list[i].score);
      const std::string_view title = titles.text(list[i].item);
      fmt::print("{}{}\n", title.empty() ? "" : "  ", title);
    }
  } else if (form_ == Form::kJsonLines) {
    // In this order, whoever reads it.
    nlohmann::ordered_json items = nlohmann::ordered_json::array();
    for (const auto& entry : list) {
      items.push_back({{"item", item_json(store, entry.item)}, {"score", entry.score}});
      const std::string_view title = titles.text(entry.item);
      if (!title.empty()) items.back()["title"] = title;
    }
    // A title is for people: what is no UTF-8 in it is replaced.
    waiting_ += nlohmann::ordered_json({{"user", user_json(store, user)}, {"items", items}})
                    .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    waiting_ += '\n';
  } else {
    const std::string name = csv_field(user);
    for (std::size_t i = 0; i < list.size(); ++i) {
      fmt::format_to(std::back_inserter(waiting_), "{},{},{},{:.6f}\n", name, i + 1,
                     csv_field(store.item_ids().text(list[i].item)), list[i].score);
    }
  }
  if (waiting_.size() > kBlock) flush();
}

// Ids as their own type: numbers where the store has numbers.
void ListWriter::write_rows(const std::string& user, const std::vector<eval::Recommendation>& list,
                            const data::Store& store) {
  using Type = data::ArrowBatch::Type;
  const bool text_items = store.item_ids().kind() == data::IdKind::kString;
  std::int64_t number = 0;
  const bool text_users = store.user_ids().kind() == data::IdKind::kString ||
                          data::parse_integer(user, number) != data::FieldError::kNone;
  if (!parquet_) {
    parquet_ = std::make_unique<data::ParquetWriter>(
        target_->writing(), data::ArrowBatch({{"user", text_users ? Type::kText : Type::kInt64},
                                              {"place", Type::kInt64},
                                              {"item", text_items ? Type::kText : Type::kInt64},
                                              {"score", Type::kFloat32}}));
  }
  data::ArrowBatch& rows = parquet_->rows();
  for (std::size_t i = 0; i < list.size(); ++i) {
    text_users ? rows.add(0, std::string_view(utf8_id(user))) : rows.add(0, number);
    rows.add(1, static_cast<std::int64_t>(i) + 1);
    if (text_items) {
      rows.add(2, std::string_view(utf8_id(store.item_ids().text(list[i].item))));
    } else {
      rows.add(2, store.item_ids().integer(list[i].item));
    }
    rows.add(3, static_cast<float>(list[i].score));
  }
  parquet_->flush_if_many();
}

void ListWriter::flush() {
  file_->write(waiting_);
  waiting_.clear();
}

void ListWriter::finish() {
  if (!to_file()) return;
  if (form_ == Form::kParquet) {
    TGR_CHECK(parquet_ != nullptr, "no list to write to '", path_, "'");
    parquet_->finish();
  } else {
    flush();
    file_->finish();
  }
  target_->put_in_place();
}

}  // namespace turbogr::apps
