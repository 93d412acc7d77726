// Rows on their way out, gathered column by column and handed over as Arrow batches.
//
//   ArrowBatch batch({{"user", ArrowBatch::Type::kInt64}, {"score", ArrowBatch::Type::kFloat32}});
//   batch.add(0, user);
//   batch.add(1, score);
//   batch.hand_over(&array);  // empty again
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/arrow/arrow_abi.h"

namespace turbogr::data {

class ArrowBatch {
 public:
  enum class Type : std::uint8_t { kInt64, kUint32, kUint16, kUint8, kFloat32, kText, kVector };
  struct ColumnType {
    std::string name;
    Type type = Type::kInt64;
    std::int64_t width = 1;  // f32 numbers of a vector
    bool optional = false;   // an integer may be missing

    std::string format() const;  // as Arrow spells it
  };

  explicit ArrowBatch(const std::vector<ColumnType>& columns);

  // One value a column makes a row, of a vector `width` numbers; the type is the column's.
  void add(std::size_t column, std::int64_t value) { columns_[column].integers.push_back(value); }
  void add(std::size_t column, float value) { columns_[column].floats.push_back(value); }
  void add(std::size_t column, std::string_view value);
  void add_missing(std::size_t column);
  std::int64_t rows() const;

  void describe(ArrowSchema* out) const;
  void hand_over(ArrowArray* out);

 private:
  struct Column {
    ColumnType about;
    std::vector<std::int64_t> integers;  // or, of texts, where each ends
    std::vector<float> floats;
    std::string text;
    std::vector<std::size_t> missing;  // which integers
    // On their way out.
    std::vector<std::byte> narrow;
    std::vector<std::uint8_t> there;

    bool is_integer() const { return about.type <= Type::kUint8; }
    const void* narrow_integers();
    const void* bitmap();
  };
  std::vector<Column> columns_;
};

}  // namespace turbogr::data
