#include "turbogr/data/arrow/parquet_scan.h"

#include <arrow/compute/api.h>
#include <arrow/compute/expression.h>
#include <arrow/compute/initialize.h>
#include <arrow/filesystem/localfs.h>
#include <arrow/io/file.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/statistics.h>

#include <algorithm>
#include <exception>
#include <future>
#include <string>
#include <utility>

namespace turbogr::data {
namespace {

namespace cp = arrow::compute;
namespace ds = arrow::dataset;

constexpr std::int64_t kMostRows = 1 << 16;  // of a batch: more only leave the caches
constexpr std::int64_t kBuffer = 1 << 18;    // of the file's bytes, a column

// What a value of a column chunk takes in memory, with its levels while it is read. Sizes in the
// metadata are of encoded values, which for repeated ones are next to nothing: only their number
// says what becomes of them.
double bytes_of_value(const parquet::ColumnDescriptor& column,
                      const parquet::ColumnChunkMetaData& chunk) {
  const double levels = column.max_definition_level() + column.max_repetition_level() > 0 ? 4 : 0;
  switch (column.physical_type()) {
    case parquet::Type::BOOLEAN:
      return levels + 1;
    case parquet::Type::INT32:
    case parquet::Type::FLOAT:
      return levels + 4;
    case parquet::Type::FIXED_LEN_BYTE_ARRAY:
      return levels + column.type_length();
    case parquet::Type::BYTE_ARRAY: {
      double length = static_cast<double>(chunk.total_uncompressed_size()) /
                      static_cast<double>(std::max<std::int64_t>(chunk.num_values(), 1));
      if (const auto range = chunk.statistics(); range != nullptr && range->HasMinMax()) {
        length = std::max({length, static_cast<double>(range->EncodeMin().size()),
                           static_cast<double>(range->EncodeMax().size())});
      }
      return levels + 4 + length;
    }
    default:
      return levels + 8;
  }
}

// Bytes of a row: the mean of the row group with the longest ones.
double bytes_of_row(const parquet::FileMetaData& file, const std::vector<int>& columns) {
  double most = 1;
  for (int g = 0; g < file.num_row_groups(); ++g) {
    const auto group = file.RowGroup(g);
    if (group->num_rows() == 0) continue;
    double bytes = 0;
    for (const int column : columns) {
      const auto chunk = group->ColumnChunk(column);
      bytes += static_cast<double>(chunk->num_values()) *
               bytes_of_value(*file.schema()->Column(column), *chunk);
    }
    most = std::max(most, bytes / static_cast<double>(group->num_rows()));
  }
  return most;
}

std::int64_t rows_of_batch(std::int64_t batch_bytes, double row_bytes) {
  return std::clamp(static_cast<std::int64_t>(static_cast<double>(batch_bytes) / row_bytes),
                    std::int64_t{1}, kMostRows);
}

// One file, in batches of the schema wanted.
class OneFile {
 public:
  static arrow::Result<std::unique_ptr<OneFile>> open(const ds::FileFragment& fragment,
                                                      const arrow::Schema& schema,
                                                      std::int64_t batch_bytes) {
    auto opened = std::make_unique<OneFile>();
    for (const auto& field : schema.fields()) {
      ARROW_ASSIGN_OR_RAISE(const auto bound, cp::field_ref(field->name()).Bind(schema));
      ARROW_ASSIGN_OR_RAISE(const auto known,
                            cp::SimplifyWithGuarantee(bound, fragment.partition_expression()));
      const bool constant = known.literal() != nullptr && known.literal()->is_scalar();
      opened->constants_.push_back(constant ? known.literal()->scalar() : nullptr);
    }
    ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(fragment.source().path()));
    parquet::ReaderProperties bytes;
    bytes.enable_buffered_stream();  // or a whole column of a row group is one read
    bytes.set_buffer_size(kBuffer);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(std::move(file), bytes));
    parquet::ArrowReaderProperties rows(/*use_threads=*/true);
    rows.set_pre_buffer(false);  // likewise
    ARROW_ASSIGN_OR_RAISE(opened->file_, builder.properties(rows)->Build());
    const auto metadata = opened->file_->parquet_reader()->metadata();
    std::vector<int> columns, groups;
    for (int i = 0; i < metadata->schema()->num_columns(); ++i) {
      const int field = schema.GetFieldIndex(metadata->schema()->GetColumnRoot(i)->name());
      if (field < 0 || opened->constants_[static_cast<std::size_t>(field)] != nullptr) continue;
      columns.push_back(i);
    }
    for (int i = 0; i < metadata->num_row_groups(); ++i) groups.push_back(i);
    opened->batch_bytes_ = batch_bytes;
    opened->row_bytes_ = bytes_of_row(*metadata, columns);
    opened->file_->set_batch_size(rows_of_batch(batch_bytes, opened->row_bytes_));
    ARROW_ASSIGN_OR_RAISE(opened->batches_, opened->file_->GetRecordBatchReader(groups, columns));
    return opened;
  }

  // Null at the end.
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next(
      const std::shared_ptr<arrow::Schema>& schema) {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(batches_->ReadNext(&batch));
    if (batch == nullptr) return nullptr;
    // Rows may be sorted by their length: the next ones are like the last, if these were longer.
    const double found = static_cast<double>(arrow::util::TotalBufferSize(*batch)) /
                         static_cast<double>(std::max<std::int64_t>(batch->num_rows(), 1));
    file_->set_batch_size(rows_of_batch(batch_bytes_, std::max(row_bytes_, found)));
    std::vector<std::shared_ptr<arrow::Array>> columns;
    for (int i = 0; i < schema->num_fields(); ++i) {
      const arrow::Field& field = *schema->field(i);
      auto cast = as_wanted(*batch, field, constants_[static_cast<std::size_t>(i)]);
      if (!cast.ok()) {
        const arrow::Status& why = cast.status();
        return why.WithMessage("column '", field.name(), "': ", why.message());
      }
      columns.push_back(*std::move(cast));
    }
    return arrow::RecordBatch::Make(schema, batch->num_rows(), std::move(columns));
  }

 private:
  static arrow::Result<std::shared_ptr<arrow::Array>> as_wanted(
      const arrow::RecordBatch& batch, const arrow::Field& field,
      const std::shared_ptr<arrow::Scalar>& constant) {
    if (constant != nullptr) {
      ARROW_ASSIGN_OR_RAISE(const arrow::Datum value,
                            cp::Cast(arrow::Datum(constant), field.type()));
      return arrow::MakeArrayFromScalar(*value.scalar(), batch.num_rows());
    }
    auto column = batch.GetColumnByName(field.name());
    if (column == nullptr) return arrow::MakeArrayOfNull(field.type(), batch.num_rows());
    if (column->type()->Equals(field.type())) return column;
    return cp::Cast(*column, field.type());
  }

  std::int64_t batch_bytes_ = 0;
  double row_bytes_ = 1;
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;      // of file_
  std::vector<std::shared_ptr<arrow::Scalar>> constants_;  // a field's value, of a partition
};

// One file after the other; the next batch is made while the last is used.
class Scan : public arrow::RecordBatchReader {
 public:
  Scan(ParquetFiles files, std::int64_t batch_bytes)
      : files_(std::move(files)), batch_bytes_(batch_bytes) {}

  std::shared_ptr<arrow::Schema> schema() const override { return files_.schema; }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    ARROW_ASSIGN_OR_RAISE(*batch, ahead_.valid() ? ahead_.get() : make());
    if (*batch != nullptr) ahead_ = std::async(std::launch::async, [this] { return make(); });
    return arrow::Status::OK();
  }

 private:
  using Made = arrow::Result<std::shared_ptr<arrow::RecordBatch>>;

  Made make() {
    try {
      while (true) {
        if (file_ == nullptr) {
          if (next_ == files_.files.size()) return nullptr;
          auto opened = OneFile::open(*files_.files[next_++], *files_.schema, batch_bytes_);
          if (!opened.ok()) return named(opened.status());
          file_ = *std::move(opened);
        }
        Made made = file_->next(files_.schema);
        if (!made.ok()) return named(made.status());
        if (*made != nullptr) return made;
        file_.reset();
      }
    } catch (const std::exception& error) {
      return named(arrow::Status::UnknownError(error.what()));
    }
  }

  arrow::Status named(const arrow::Status& why) const {
    const std::string& path = files_.files[next_ - 1]->source().path();
    if (why.message().find(path) != std::string::npos) return why;
    return why.WithMessage("'", path, "': ", why.message());
  }

  ParquetFiles files_;
  std::int64_t batch_bytes_;
  std::size_t next_ = 0;  // the first file that was not opened yet
  std::unique_ptr<OneFile> file_;
  std::future<Made> ahead_;  // last: it waits, when it goes, for what uses the others
};

}  // namespace

arrow::Result<ParquetFiles> find_parquet_files(const char* const* paths, std::int64_t count) {
  ARROW_RETURN_NOT_OK(cp::Initialize());
  auto disk = std::make_shared<arrow::fs::LocalFileSystem>();
  auto format = std::make_shared<ds::ParquetFileFormat>();
  ParquetFiles found;
  for (std::int64_t i = 0; i < count; ++i) {
    ds::HivePartitioningFactoryOptions hive;
    hive.null_fallback = ds::kDefaultHiveNullFallback;  // what such a folder is called
    ds::FileSystemFactoryOptions options;
    options.partitioning = ds::HivePartitioning::MakeFactory(hive);
    ARROW_ASSIGN_OR_RAISE(const arrow::fs::FileInfo info, disk->GetFileInfo(paths[i]));
    std::shared_ptr<ds::DatasetFactory> factory;
    if (info.IsDirectory()) {
      arrow::fs::FileSelector selector;
      selector.base_dir = paths[i];
      selector.recursive = true;
      options.partition_base_dir = paths[i];
      ARROW_ASSIGN_OR_RAISE(factory,
                            ds::FileSystemDatasetFactory::Make(disk, selector, format, options));
    } else {
      ARROW_ASSIGN_OR_RAISE(
          factory, ds::FileSystemDatasetFactory::Make(disk, std::vector<std::string>{paths[i]},
                                                      format, options));
    }
    ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<ds::Dataset> dataset, factory->Finish());
    if (found.schema == nullptr) found.schema = dataset->schema();
    ARROW_ASSIGN_OR_RAISE(auto fragments, dataset->GetFragments());
    for (auto fragment : fragments) {
      ARROW_RETURN_NOT_OK(fragment.status());
      found.files.push_back(std::dynamic_pointer_cast<ds::FileFragment>(*std::move(fragment)));
    }
  }
  if (found.schema == nullptr) return arrow::Status::Invalid("no file was named");
  return found;
}

std::shared_ptr<arrow::RecordBatchReader> read_parquet_files(ParquetFiles files,
                                                             std::int64_t batch_bytes) {
  return std::make_shared<Scan>(std::move(files), batch_bytes);
}

}  // namespace turbogr::data
