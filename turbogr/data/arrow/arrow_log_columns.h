// The columns of an Arrow stream that a log is made of.
#pragma once

#include <memory>
#include <vector>

#include "turbogr/data/arrow/arrow_column.h"
#include "turbogr/data/arrow/arrow_stream.h"
#include "turbogr/data/log_layout.h"

namespace turbogr::data {

class ArrowLogColumns {
 public:
  // Finds them by name. Throws when one is not there, cannot be read, or holds lists where it may
  // not.
  ArrowLogColumns(const ArrowStream& stream, const ColumnMap& map);

  const LogLayout& layout() const { return layout_; }
  const ArrowColumn& operator[](int column) const {
    return *columns_[static_cast<std::size_t>(column)];
  }
  bool sequential() const { return (*this)[layout_.item].is_list(); }  // a row is a user
  void bind(const ArrowArray& batch);

 private:
  void check_lists();

  LogLayout layout_;
  std::vector<std::unique_ptr<ArrowColumn>> columns_;  // null: not part of the log
};

}  // namespace turbogr::data
