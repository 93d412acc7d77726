// Where `turbogr rank` puts its scores: for people on standard output, as JSON there, or in a file
// whose name says how, .csv or .jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turbogr/core/output_file.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/store.h"

namespace turbogr::apps {

// One item of a request with its scores, one a task.
struct ScoredItem {
  std::int64_t item = 0;
  std::span<const float> scores;
};

class ScoreWriter {
 public:
  // An empty path: standard output. Throws when the name ends otherwise or the file cannot be
  // written: known before work starts.
  ScoreWriter(const std::string& path, bool json, std::vector<std::string> tasks);
  ScoreWriter(const ScoreWriter&) = delete;
  ScoreWriter& operator=(const ScoreWriter&) = delete;

  void write(const std::string& user, const std::vector<ScoredItem>& items,
             const data::Store& store, const data::ItemTitles& titles);
  void finish();  // the file stands, whole

 private:
  enum class Form : std::uint8_t { kText, kCsv, kJsonLines };

  Form form_ = Form::kText;
  std::vector<std::string> tasks_;
  std::optional<OutputTarget> target_;
  std::optional<OutputFile> file_;
};

}  // namespace turbogr::apps
