// Parquet files as one Arrow stream in bounded memory: within libturbogr_parquet.so alone.
#pragma once

#include <arrow/api.h>
#include <arrow/dataset/api.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace turbogr::data {

struct ParquetFiles {
  std::vector<std::shared_ptr<arrow::dataset::FileFragment>> files;
  std::shared_ptr<arrow::Schema> schema;  // of the first file, and of partitions
};

// Files and (hive-partitioned) folders, in the order of the paths and of the names in folders.
arrow::Result<ParquetFiles> find_parquet_files(const char* const* paths, std::int64_t count);

// The columns of the schema, which may be some of all there are. Files of other types are cast or
// refused with words; a column that a file has not is null. A batch takes about `batch_bytes` in
// memory, however large the row groups and lists are, and one is read ahead.
std::shared_ptr<arrow::RecordBatchReader> read_parquet_files(ParquetFiles files,
                                                             std::int64_t batch_bytes);

}  // namespace turbogr::data
