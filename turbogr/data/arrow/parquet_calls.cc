// libturbogr_parquet.so: Parquet by the Arrow C++ library that a pyarrow brought along. The only
// source that sees Arrow's headers; not part of the program.
#include "turbogr/data/arrow/parquet_calls.h"

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/compute/initialize.h>
#include <arrow/config.h>
#include <arrow/dataset/api.h>
#include <arrow/filesystem/localfs.h>
#include <arrow/io/file.h>
#include <arrow/util/config.h>
#include <parquet/arrow/writer.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace ds = arrow::dataset;

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

arrow::Result<std::vector<std::shared_ptr<ds::Dataset>>> datasets_of(const char* const* paths,
                                                                     std::int64_t count) {
  ARROW_RETURN_NOT_OK(arrow::compute::Initialize());
  auto files = std::make_shared<arrow::fs::LocalFileSystem>();
  auto format = std::make_shared<ds::ParquetFileFormat>();
  std::vector<std::shared_ptr<ds::Dataset>> found;
  for (std::int64_t i = 0; i < count; ++i) {
    ds::FileSystemFactoryOptions options;
    options.partitioning = ds::HivePartitioning::MakeFactory();
    ARROW_ASSIGN_OR_RAISE(const arrow::fs::FileInfo info, files->GetFileInfo(paths[i]));
    std::shared_ptr<ds::DatasetFactory> factory;
    if (info.IsDirectory()) {
      arrow::fs::FileSelector selector;
      selector.base_dir = paths[i];
      selector.recursive = true;
      options.partition_base_dir = paths[i];
      ARROW_ASSIGN_OR_RAISE(factory,
                            ds::FileSystemDatasetFactory::Make(files, selector, format, options));
    } else {
      ARROW_ASSIGN_OR_RAISE(
          factory, ds::FileSystemDatasetFactory::Make(files, std::vector<std::string>{paths[i]},
                                                      format, options));
    }
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<ds::Dataset> dataset, factory->Finish());
    found.push_back(std::move(dataset));
  }
  return found;
}

// One path after the other: the batches of each through a scanner of its own.
class Chain : public arrow::RecordBatchReader {
 public:
  Chain(std::vector<std::shared_ptr<ds::Dataset>> datasets, std::vector<std::string> columns,
        std::shared_ptr<arrow::Schema> schema)
      : datasets_(std::move(datasets)), columns_(std::move(columns)), schema_(std::move(schema)) {}

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    while (true) {
      if (!reader_) {
        *batch = nullptr;
        if (next_ == datasets_.size()) return arrow::Status::OK();
        ARROW_RETURN_NOT_OK(open(datasets_[next_++]));
      }
      ARROW_RETURN_NOT_OK(reader_->ReadNext(batch));
      if (*batch != nullptr) return arrow::Status::OK();
      reader_.reset();
    }
  }

 private:
  arrow::Status open(const std::shared_ptr<ds::Dataset>& dataset) {
    // Files of other types than the first one's are cast, or refused with words.
    std::vector<std::shared_ptr<arrow::Field>> fields = dataset->schema()->fields();
    for (auto& field : fields) {
      if (const auto wanted = schema_->GetFieldByName(field->name())) field = wanted;
    }
    ARROW_ASSIGN_OR_RAISE(auto same, dataset->ReplaceSchema(arrow::schema(fields)));
    ds::ScannerBuilder builder(same);
    ARROW_RETURN_NOT_OK(builder.Project(columns_));
    ARROW_RETURN_NOT_OK(builder.BatchSize(1 << 16));
    ARROW_RETURN_NOT_OK(builder.BatchReadahead(4));
    ARROW_RETURN_NOT_OK(builder.FragmentReadahead(1));
    ARROW_ASSIGN_OR_RAISE(auto scanner, builder.Finish());
    return scanner->ToRecordBatchReader().Value(&reader_);
  }

  std::vector<std::shared_ptr<ds::Dataset>> datasets_;
  std::vector<std::string> columns_;
  std::shared_ptr<arrow::Schema> schema_;
  std::size_t next_ = 0;
  std::shared_ptr<arrow::RecordBatchReader> reader_;
};

const char* runs_with() {
  static const std::string version = arrow::GetBuildInfo().version_string;
  return version.c_str();
}

const char* columns(const char* const* paths, std::int64_t count, ArrowSchema* out) {
  return guarded([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto datasets, datasets_of(paths, count));
    if (datasets.empty()) return arrow::Status::Invalid("no file was named");
    return arrow::ExportSchema(*datasets[0]->schema(), out);
  });
}

const char* read(const char* const* paths, std::int64_t count, const char* const* names,
                 std::int64_t num_names, ArrowArrayStream* out) {
  return guarded([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(auto datasets, datasets_of(paths, count));
    if (datasets.empty()) return arrow::Status::Invalid("no file was named");
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (std::int64_t i = 0; i < num_names; ++i) {
      auto field = datasets[0]->schema()->GetFieldByName(names[i]);
      if (field == nullptr) return arrow::Status::Invalid("no column '", names[i], "'");
      fields.push_back(std::move(field));
    }
    return arrow::ExportRecordBatchReader(
        std::make_shared<Chain>(std::move(datasets),
                                std::vector<std::string>(names, names + num_names),
                                arrow::schema(std::move(fields))),
        out);
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
