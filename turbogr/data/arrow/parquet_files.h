// Parquet by the library behind parquet_calls.h: logs and tables in files and folders as an Arrow
// stream, rows to a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "turbogr/data/arrow/arrow_batch.h"
#include "turbogr/data/arrow/arrow_stream.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {

// What one batch may take of the memory that prepare may use: two or three are there at a time.
constexpr std::size_t parquet_batch_bytes(std::size_t memory_bytes) { return memory_bytes / 32; }

// These throw when there is no such library, file or column. A log brings only the columns that it
// is made of, a table all it has.
std::unique_ptr<ArrowStream> open_parquet_table(const std::filesystem::path& input,
                                                std::size_t memory_bytes);
std::unique_ptr<ArrowStream> open_parquet_log(const std::vector<std::filesystem::path>& inputs,
                                              const ColumnMap& map, std::size_t memory_bytes);

// Rows to a Parquet file, a row group of a million or so at a time.
class ParquetWriter {
 public:
  // Throws when there is no such library or the file cannot be made.
  ParquetWriter(std::string path, ArrowBatch rows);
  ~ParquetWriter();  // an unfinished file stays unreadable
  ParquetWriter(const ParquetWriter&) = delete;
  ParquetWriter& operator=(const ParquetWriter&) = delete;

  ArrowBatch& rows() { return rows_; }
  void flush_if_many();  // between rows
  void finish();

 private:
  void flush();

  std::string path_;
  ArrowBatch rows_;
  void* writer_ = nullptr;
};

}  // namespace turbogr::data
