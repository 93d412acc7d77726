// Features of events, from columns of the log to columns of a store under work. A row carries four
// bytes a feature: a number, or the place of the field's text among the distinct ones seen. Values
// are numbered in ascending order once all are known, so that the codes depend neither on the order
// of the log nor on the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/features/feature_text.h"
#include "turbogr/data/features/feature_writer.h"
#include "turbogr/data/features/vocabulary.h"
#include "turbogr/data/store_writer.h"

namespace turbogr::data {

class EventFeatures {
 public:
  // `samples` are the fields of the log's first rows, one list a request.
  EventFeatures(std::vector<FeatureRequest> requests,
                const std::vector<std::vector<std::string>>& samples, std::size_t memory_bytes);

  std::size_t size() const { return columns_.size(); }

  // What a row keeps of the field.
  std::uint32_t keep(std::size_t feature, std::string_view field, std::string_view file,
                     std::int64_t line);

  // After the last row; then the rows' features go to the store, event by event.
  void open(StoreWriter& writer);
  void write(std::size_t feature, std::uint32_t kept);

  std::vector<std::string> remarks() const;

 private:
  struct Column {
    FeatureRequest request;
    FeatureColumnKind kind;
    Vocabulary fields;  // as they stand in the log; of a bag all its values in one
    std::int64_t unparsable = 0;
    std::string first_unparsable;
    // Once open: the codes of each distinct field, end to end.
    std::vector<std::int32_t> codes;
    std::vector<std::uint64_t> ends;
    FeatureWriter* writer = nullptr;
  };

  void check_memory(const Column& column) const;
  static void number(Column& column);

  std::vector<Column> columns_;
  std::vector<std::string> remarks_;
  std::size_t memory_;
};

}  // namespace turbogr::data
