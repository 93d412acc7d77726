#include "turbogr/data/arrow/arrow_stream.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "turbogr/core/check.h"

namespace turbogr::data {

ArrowStream::ArrowStream(std::string name, ArrowArrayStream* raw) : name_(std::move(name)) {
  TGR_CHECK(raw != nullptr && raw->release != nullptr, "'", name_,
            "': the Arrow stream has been read already; a stream can be read once: make it anew");
  stream_ = std::exchange(*raw, {});
  try {
    check(stream_.get_schema(&stream_, &schema_), "say what its columns are");
    TGR_CHECK(schema_.format != nullptr && std::string_view(schema_.format) == "+s", "'", name_,
              "' is an Arrow stream of single values (type '",
              schema_.format == nullptr ? "" : schema_.format,
              "'), not of record batches; give a table, a data frame or a reader of batches");
  } catch (...) {
    if (schema_.release != nullptr) schema_.release(&schema_);
    stream_.release(&stream_);
    throw;
  }
}

ArrowStream::~ArrowStream() {
  free_batch();
  schema_.release(&schema_);
  stream_.release(&stream_);
}

void ArrowStream::free_batch() {
  if (batch_.release != nullptr) batch_.release(&batch_);
}

void ArrowStream::check(int status, const char* doing) {
  if (status == 0) return;
  const char* words = stream_.get_last_error(&stream_);
  detail::throw_error("'", name_, "': its Arrow stream could not ", doing, ": ",
                      words != nullptr ? words : std::strerror(status));
}

std::vector<std::string> ArrowStream::column_names() const {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < schema_.n_children; ++i) {
    const char* name = schema_.children[i]->name;
    names.emplace_back(name != nullptr ? name : "");
  }
  return names;
}

bool ArrowStream::next() {
  free_batch();
  batch_ = {};
  check(stream_.get_next(&stream_, &batch_), "give its next batch");
  if (batch_.release == nullptr) return false;
  TGR_CHECK(batch_.n_children == schema_.n_children, "'", name_, "': a batch has ",
            batch_.n_children, " columns where its schema names ", schema_.n_children);
  TGR_CHECK(batch_.null_count <= 0, "'", name_, "': ", batch_.null_count,
            " rows of a batch are null as a whole; drop them first");
  return true;
}

}  // namespace turbogr::data
