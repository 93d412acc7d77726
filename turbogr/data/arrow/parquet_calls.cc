// libturbogr_parquet.so: Parquet by the Arrow C++ library that a pyarrow brought along. This and
// parquet_scan.cc alone see Arrow's headers; they are no part of the program.
#include "turbogr/data/arrow/parquet_calls.h"

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/config.h>
#include <arrow/io/file.h>
#include <arrow/util/config.h>
#include <parquet/arrow/writer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "turbogr/data/arrow/parquet_scan.h"

namespace {

using turbogr::data::find_parquet_files;
using turbogr::data::ParquetFiles;
using turbogr::data::read_parquet_files;

const char* words(const arrow::Status& status) {
  thread_local std::string text;
  if (status.ok()) return nullptr;
  text = status.message();
  return text.c_str();
}

// Arrow's own errors are values; what its parts throw becomes one.
template <class Work>
const char* guarded(Work&& work) {
  try {
    return words(work());
  } catch (const std::exception& error) {
    return words(arrow::Status::UnknownError(error.what()));
  }
}

const char* runs_with() {
  static const std::string version = arrow::GetBuildInfo().version_string;
  return version.c_str();
}

const char* columns(const char* const* paths, std::int64_t count, ArrowSchema* out) {
  return guarded([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const ParquetFiles files, find_parquet_files(paths, count));
    return arrow::ExportSchema(*files.schema, out);
  });
}

const char* read(const char* const* paths, std::int64_t count, const char* const* names,
                 std::int64_t num_names, std::int64_t batch_bytes, ArrowArrayStream* out) {
  return guarded([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(ParquetFiles files, find_parquet_files(paths, count));
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (std::int64_t i = 0; i < num_names; ++i) {
      auto field = files.schema->GetFieldByName(names[i]);
      if (field == nullptr) return arrow::Status::Invalid("no column '", names[i], "'");
      fields.push_back(std::move(field));
    }
    files.schema = arrow::schema(std::move(fields));
    return arrow::ExportRecordBatchReader(read_parquet_files(std::move(files), batch_bytes), out);
  });
}

struct Writer {
  std::shared_ptr<arrow::io::FileOutputStream> file;
  std::unique_ptr<parquet::arrow::FileWriter> parquet;
  std::shared_ptr<arrow::Schema> schema;
};

const char* open_writer(const char* path, ArrowSchema* schema, void** writer) {
  return guarded([&]() -> arrow::Status {
    auto made = std::make_unique<Writer>();
    ARROW_ASSIGN_OR_RAISE(made->schema, arrow::ImportSchema(schema));
    ARROW_ASSIGN_OR_RAISE(made->file, arrow::io::FileOutputStream::Open(path));
    ARROW_ASSIGN_OR_RAISE(
        made->parquet,
        parquet::arrow::FileWriter::Open(
            *made->schema, arrow::default_memory_pool(), made->file,
            parquet::WriterProperties::Builder().compression(arrow::Compression::ZSTD)->build()));
    *writer = made.release();
    return arrow::Status::OK();
  });
}

const char* write(void* writer, ArrowArray* batch) {
  return guarded([&]() -> arrow::Status {
    auto& to = *static_cast<Writer*>(writer);
    ARROW_ASSIGN_OR_RAISE(const auto imported, arrow::ImportRecordBatch(batch, to.schema));
    return to.parquet->WriteRecordBatch(*imported);
  });
}

const char* close_writer(void* writer) {
  const std::unique_ptr<Writer> to(static_cast<Writer*>(writer));
  return guarded([&]() -> arrow::Status {
    ARROW_RETURN_NOT_OK(to->parquet->Close());
    return to->file->Close();
  });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TurbogrParquetCalls*
turbogr_parquet_calls() {
  static constexpr TurbogrParquetCalls kCalls = {
      turbogr::data::kParquetCallsVersion,
      ARROW_VERSION_STRING,
      runs_with,
      columns,
      read,
      open_writer,
      write,
      close_writer,
  };
  return &kCalls;
}
