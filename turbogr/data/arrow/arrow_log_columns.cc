#include "turbogr/data/arrow/arrow_log_columns.h"

#include <fmt/format.h>

#include <algorithm>

#include "turbogr/core/check.h"
#include "turbogr/data/field.h"

namespace turbogr::data {

ArrowLogColumns::ArrowLogColumns(const ArrowStream& stream, const ColumnMap& map)
    : layout_(find_named_layout(map, stream.column_names(), stream.name())),
      columns_(layout_.num_columns) {
  for (const int column : layout_.columns()) {
    const auto at = static_cast<std::size_t>(column);
    columns_[at] = std::make_unique<ArrowColumn>(
        stream.column(at),
        fmt::format("'{}': column '{}'", stream.name(), printable(stream.column(at).name, 80)));
  }
  TGR_CHECK(!(*this)[layout_.user].is_list(), (*this)[layout_.user].where(),
            " holds lists; users are one a row");
  check_lists();
}

// Lists of one value an event need a list of items; a feature may be a list by itself.
void ArrowLogColumns::check_lists() {
  if (sequential()) return;
  const auto flat = [&](int column) {
    if (column < 0) return;
    TGR_CHECK(!(*this)[column].is_list(), (*this)[column].where(),
              " holds lists, and the item column does not; in the form of a row a user both do");
  };
  flat(layout_.time);
  for (const int column : layout_.signals) flat(column);
  for (const int column : layout_.numbers) flat(column);
  for (const LabelColumns& label : layout_.labels) {
    std::for_each(label.columns.begin(), label.columns.end(), flat);
  }
}

void ArrowLogColumns::bind(const ArrowArray& batch) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!columns_[i]) continue;
    TGR_CHECK(batch.children[i]->length >= batch.length + batch.offset, columns_[i]->where(), ": ",
              batch.children[i]->length, " values in a batch of ", batch.length, " rows");
    columns_[i]->bind(*batch.children[i], batch.offset);
  }
}

}  // namespace turbogr::data
