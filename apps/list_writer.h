// Where `turbogr recommend` puts its lists: for people on standard output, or for programs in a
// file whose name says how, .csv, .jsonl or .parquet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "turbogr/core/output_file.h"
#include "turbogr/data/arrow/parquet_files.h"
#include "turbogr/data/batch.h"
#include "turbogr/data/item_titles.h"
#include "turbogr/data/store.h"
#include "turbogr/run/trained_model.h"

namespace turbogr::apps {

class ListWriter {
 public:
  // Empty: standard output. Throws when the name ends otherwise or the file cannot be written:
  // known before work starts.
  explicit ListWriter(const std::string& path);
  ListWriter(const ListWriter&) = delete;
  ListWriter& operator=(const ListWriter&) = delete;

  bool to_file() const { return form_ != Form::kText; }
  // The list for sequence b of the batch, who goes by the name `user`.
  void write(const std::string& user, const data::Batch& batch, std::size_t b,
             const std::vector<eval::Recommendation>& list, const data::Store& store,
             const data::ItemTitles& titles);
  std::int64_t users() const { return users_; }
  void finish();  // the file stands, whole

 private:
  enum class Form : std::uint8_t { kText, kCsv, kJsonLines, kParquet };
  void flush();
  void write_rows(const std::string& user, const std::vector<eval::Recommendation>& list,
                  const data::Store& store);

  std::string path_;
  Form form_ = Form::kText;
  std::optional<OutputTarget> target_;
  std::optional<OutputFile> file_;
  std::string waiting_;                           // to be written
  std::unique_ptr<data::ParquetWriter> parquet_;  // made at the first list, when types are known
  std::int64_t users_ = 0;
};

}  // namespace turbogr::apps
