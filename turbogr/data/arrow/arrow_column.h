// One column of an Arrow stream, its values as prepare wants them: integers, numbers, signals,
// times or text, whatever whole-number, floating, boolean, string, dictionary or temporal type they
// are stored as. Conversions work on runs of values, so that a type is looked at once a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/data/arrow/arrow_abi.h"
#include "turbogr/data/field.h"

namespace turbogr::data {

class ArrowColumn {
 public:
  // `where` is for messages: "'frame': column 'user_id'". Throws on a type that nothing here reads
  // (decimals, structs, maps, ...), naming it.
  ArrowColumn(const ArrowSchema& schema, std::string where);

  enum class Kind : std::uint8_t {
    kNull,  // every value is missing
    kBool,
    kInt8,
    kInt16,
    kInt32,
    kInt64,
    kUint8,
    kUint16,
    kUint32,
    kUint64,
    kFloat16,
    kFloat32,
    kFloat64,
    kString,       // 32-bit offsets; binary too
    kLargeString,  // 64-bit offsets
    kStringView,
    kDate32,     // days
    kTimestamp,  // in a unit, always UTC
    kList,       // 32-bit offsets
    kLargeList,
    kFixedList,
  };

  bool is_list() const { return kind_ >= Kind::kList; }
  bool is_text() const { return values_kind() >= Kind::kString && values_kind() < Kind::kDate32; }
  bool is_integer() const { return values_kind() >= Kind::kInt8 && values_kind() < Kind::kFloat16; }
  bool is_temporal() const {
    return values_kind() == Kind::kDate32 || values_kind() == Kind::kTimestamp;
  }
  bool is_floating() const {
    return values_kind() >= Kind::kFloat16 && values_kind() < Kind::kString;
  }
  const std::string& where() const { return where_; }

  // The array of the next batch; `first` is where its row 0 lies (the offset of what holds it).
  void bind(const ArrowArray& array, std::int64_t first);

  // A list column: the values of row `row` are [begin, end) of values(), which is bound with it.
  struct Span {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  Span span(std::int64_t row) const;
  ArrowColumn& values() { return *child_; }
  const ArrowColumn& values() const { return *child_; }

  bool is_null(std::int64_t row) const;

  // Rows [row, row + count) as what is asked for. `errors` [count] are FieldErrors: kEmpty where
  // the value is missing, kNotANumber and kTooLarge as text fields have them. Returns whether all
  // are kNone.
  bool integers(std::int64_t row, std::int64_t count, std::int64_t* out, FieldError* errors) const;
  // Missing is NaN, and no error.
  bool numbers(std::int64_t row, std::int64_t count, float* out, FieldError* errors) const;
  // Missing is not set, and no error: `missing` says so.
  bool signals(std::int64_t row, std::int64_t count, bool* out, bool* missing,
               FieldError* errors) const;
  // Integers as they are, everything else in milliseconds; text by `spelling`.
  bool times(std::int64_t row, std::int64_t count, TimeSpelling spelling, std::int64_t* out,
             FieldError* errors) const;
  // The value as text: of a string column where it lies, else written into `scratch`. Missing is
  // empty. Of a list all its values, joined by `separator`.
  std::string_view text(std::int64_t row, std::string& scratch, char separator = '|') const;

 private:
  Kind values_kind() const { return dictionary_ ? dictionary_->kind_ : kind_; }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(array_->buffers[1]) + first_;
  }
  std::string_view string(std::int64_t row) const;  // of a string column
  std::int64_t dictionary_row(std::int64_t row) const;
  // Calls use(i, value) for the values that are there, as the C++ type of their kind, and
  // missing(i) for the others. False: not a kind of number.
  template <class Use, class Missing>
  bool visit_values(std::int64_t row, std::int64_t count, Use&& use, Missing&& missing) const;

  std::string where_;
  Kind kind_ = Kind::kNull;
  std::int64_t units_per_second_ = 1;  // of timestamps
  std::int64_t fixed_size_ = 0;        // of a fixed list
  std::unique_ptr<ArrowColumn> child_;
  std::unique_ptr<ArrowColumn> dictionary_;
  const ArrowArray* array_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t text_end_ = 0;            // bytes of all strings with offsets
  const std::uint8_t* valid_ = nullptr;  // bitmap; null: all are there
};

}  // namespace turbogr::data
