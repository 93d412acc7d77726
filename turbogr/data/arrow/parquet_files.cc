#include "turbogr/data/arrow/parquet_files.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/arrow/parquet_calls.h"

namespace turbogr::data {
namespace {

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  pointers.reserve(texts.size());
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

void check_parquet(const char* problem, const std::string& name) {
  TGR_CHECK(problem == nullptr, "'", name, "': Parquet cannot be read: ", problem);
}

// The columns that choose(names, what the inputs are called) wants.
template <class Choose>
std::unique_ptr<ArrowStream> open_parquet(const std::vector<std::filesystem::path>& inputs,
                                          std::size_t memory_bytes, Choose&& choose) {
  TGR_CHECK(!inputs.empty(), "no input file is given");
  std::vector<std::string> paths;
  for (const std::filesystem::path& input : inputs) {
    TGR_CHECK(std::filesystem::exists(input), "there is no input '", input.string(),
              "'; name Parquet files, or folders of them");
    paths.push_back(std::filesystem::absolute(input).string());
  }
  const std::string name =
      inputs.size() == 1 ? inputs[0].string()
                         : fmt::format("{} and {} others", inputs[0].string(), inputs.size() - 1);
  const TurbogrParquetCalls& calls = parquet_calls();
  const std::vector<const char*> files = pointers_to(paths);
  ArrowSchema schema = {};
  check_parquet(calls.columns(files.data(), std::ssize(files), &schema), name);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    names.emplace_back(schema.children[i]->name);
  }
  schema.release(&schema);
  const std::vector<std::string> wanted = choose(names, name);
  ArrowArrayStream stream = {};
  const auto batch_bytes = static_cast<std::int64_t>(parquet_batch_bytes(memory_bytes));
  check_parquet(calls.read(files.data(), std::ssize(files), pointers_to(wanted).data(),
                           std::ssize(wanted), batch_bytes, &stream),
                name);
  return std::make_unique<ArrowStream>(name, &stream);
}

}  // namespace

std::unique_ptr<ArrowStream> open_parquet_table(const std::filesystem::path& input,
                                                std::size_t memory_bytes) {
  return open_parquet(
      {input}, memory_bytes,
      [](const std::vector<std::string>& names, const std::string&) { return names; });
}

std::unique_ptr<ArrowStream> open_parquet_log(const std::vector<std::filesystem::path>& inputs,
                                              const ColumnMap& map, std::size_t memory_bytes) {
  return open_parquet(inputs, memory_bytes,
                      [&](const std::vector<std::string>& names, const std::string& name) {
                        return log_columns(map, names, name);
                      });
}

namespace {

void check_written(const char* problem, const std::string& path) {
  TGR_CHECK(problem == nullptr, "cannot write '", path, "': ", problem);
}

}  // namespace

ParquetWriter::ParquetWriter(std::string path, ArrowBatch rows)
    : path_(std::move(path)), rows_(std::move(rows)) {
  const TurbogrParquetCalls& calls = parquet_calls();
  ArrowSchema schema = {};
  rows_.describe(&schema);
  check_written(calls.open_writer(path_.c_str(), &schema, &writer_), path_);
}

ParquetWriter::~ParquetWriter() {
  if (writer_ != nullptr) parquet_calls().close_writer(writer_);
}

void ParquetWriter::flush() {
  ArrowArray batch = {};
  rows_.hand_over(&batch);
  check_written(parquet_calls().write(writer_, &batch), path_);
}

void ParquetWriter::flush_if_many() {
  if (rows_.rows() >= 1 << 16) flush();
}

void ParquetWriter::finish() {
  flush();
  check_written(parquet_calls().close_writer(std::exchange(writer_, nullptr)), path_);
}

}  // namespace turbogr::data
