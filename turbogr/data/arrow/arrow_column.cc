#include "turbogr/data/arrow/arrow_column.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/core/dtype.h"

namespace turbogr::data {
namespace {

using Kind = ArrowColumn::Kind;

// The types with a format of one letter.
struct PlainType {
  char format;
  Kind kind;
};
constexpr PlainType kPlainTypes[] = {
    {'n', Kind::kNull},    {'b', Kind::kBool},       {'c', Kind::kInt8},
    {'C', Kind::kUint8},   {'s', Kind::kInt16},      {'S', Kind::kUint16},
    {'i', Kind::kInt32},   {'I', Kind::kUint32},     {'l', Kind::kInt64},
    {'L', Kind::kUint64},  {'e', Kind::kFloat16},    {'f', Kind::kFloat32},
    {'g', Kind::kFloat64}, {'u', Kind::kString},     {'U', Kind::kLargeString},
    {'z', Kind::kString},  {'Z', Kind::kLargeString}};

bool bit_of(const std::uint8_t* bits, std::int64_t at) {
  return ((bits[at >> 3] >> (at & 7)) & 1) != 0;
}

std::int64_t floor_divide(std::int64_t value, std::int64_t by) {
  return value / by - (value % by < 0 ? 1 : 0);
}

template <class T>
FieldError to_integer(T value, std::int64_t& out) {
  if constexpr (std::is_same_v<T, f16>) {
    return to_integer(static_cast<float>(value), out);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return FieldError::kEmpty;  // what pandas makes of a missing integer
    // Past 2^53 neighbouring integers are the same number.
    if (value != std::trunc(value)) return FieldError::kNotANumber;
    if (!(std::abs(static_cast<double>(value)) <= 0x1p53)) return FieldError::kTooLarge;
    out = static_cast<std::int64_t>(value);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return FieldError::kTooLarge;
    }
    out = static_cast<std::int64_t>(value);
  } else {
    out = static_cast<std::int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): a number
  }
  return FieldError::kNone;
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, f16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

FieldError time_from_seconds(double seconds, std::int64_t& out) {
  if (std::isnan(seconds)) return FieldError::kEmpty;
  if (!(std::abs(seconds) < 1e14)) return FieldError::kTooLarge;
  out = std::llround(seconds * 1000);
  return time_in_range(out);
}

// Milliseconds of a count of units.
FieldError time_from_units(std::int64_t value, std::int64_t units_per_second, std::int64_t& out) {
  if (units_per_second >= 1000) {
    out = floor_divide(value, units_per_second / 1000);
  } else if (__builtin_mul_overflow(value, 1000 / units_per_second, &out)) {
    return FieldError::kTooLarge;
  }
  return time_in_range(out);
}

template <class Number>
std::string_view written(Number value, std::string& scratch) {
  char text[64];
  const auto result = std::to_chars(std::begin(text), std::end(text), value);
  scratch.assign(text, result.ptr);
  return scratch;
}

}  // namespace

ArrowColumn::ArrowColumn(const ArrowSchema& schema, std::string where) : where_(std::move(where)) {
  const std::string_view format = schema.format != nullptr ? schema.format : "";
  const auto unknown = [&] {
    detail::throw_error(where_, " has the Arrow type '", format,
                        "', which turbogr does not read; cast it to integers, floats, booleans, "
                        "strings, timestamps or lists of these");
  };
  if (format.size() == 1) {
    bool found = false;
    for (const PlainType& type : kPlainTypes) {
      if (type.format != format[0]) continue;
      kind_ = type.kind;
      found = true;
    }
    if (!found) unknown();
  } else if (format == "vu" || format == "vz") {
    kind_ = Kind::kStringView;
  } else if (format == "tdD") {
    kind_ = Kind::kDate32;
  } else if (format == "tdm") {
    kind_ = Kind::kTimestamp;
    units_per_second_ = 1000;
  } else if (format.starts_with("ts") && format.size() >= 4) {
    kind_ = Kind::kTimestamp;
    const std::size_t unit = std::string_view("smun").find(format[2]);
    if (unit == std::string_view::npos) unknown();
    for (std::size_t i = 0; i < unit; ++i) units_per_second_ *= 1000;
  } else if (format == "+l" || format == "+L" || format.starts_with("+w:")) {
    kind_ = format == "+l" ? Kind::kList : format == "+L" ? Kind::kLargeList : Kind::kFixedList;
    if (kind_ == Kind::kFixedList) {
      std::from_chars(format.data() + 3, format.data() + format.size(), fixed_size_);
    }
    TGR_CHECK(schema.n_children == 1, where_, ": an Arrow list has ", schema.n_children,
              " kinds of values instead of one");
    child_ = std::make_unique<ArrowColumn>(*schema.children[0], where_);
    TGR_CHECK(!child_->is_list(), where_, " holds lists of lists; one level is what can be read");
  } else {
    unknown();
  }
  if (schema.dictionary != nullptr) {
    TGR_CHECK(is_list() || (kind_ >= Kind::kInt8 && kind_ <= Kind::kUint64), where_,
              ": an Arrow dictionary is numbered by '", format, "', which is no integer type");
    dictionary_ = std::make_unique<ArrowColumn>(*schema.dictionary, where_);
    TGR_CHECK(!dictionary_->is_list() && !dictionary_->dictionary_, where_,
              " has a dictionary of lists or of dictionaries; decode it first");
  }
}

void ArrowColumn::bind(const ArrowArray& array, std::int64_t first) {
  static constexpr int kBuffers[] = {/*null*/ 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                                     2,          2, 3, 3, 3, 2, 2, 2, 2, 1};
  TGR_CHECK(array.n_buffers >= kBuffers[static_cast<int>(kind_)], where_, ": an Arrow array has ",
            array.n_buffers, " buffers where its type wants ", kBuffers[static_cast<int>(kind_)]);
  TGR_CHECK(
      array.length == 0 || kBuffers[static_cast<int>(kind_)] < 2 || array.buffers[1] != nullptr,
      where_, ": an Arrow array of ", array.length, " values comes without them");
  array_ = &array;
  first_ = first + array.offset;
  valid_ = kind_ == Kind::kNull || array.null_count == 0
               ? nullptr
               : static_cast<const std::uint8_t*>(array.buffers[0]);
  text_end_ = 0;
  if (kind_ == Kind::kString && array.length > 0) {
    text_end_ = static_cast<const std::int32_t*>(array.buffers[1])[array.offset + array.length];
  } else if (kind_ == Kind::kLargeString && array.length > 0) {
    text_end_ = static_cast<const std::int64_t*>(array.buffers[1])[array.offset + array.length];
  }
  if (dictionary_) {
    TGR_CHECK(array.dictionary != nullptr, where_, ": a batch comes without its dictionary");
    dictionary_->bind(*array.dictionary, 0);
  }
  if (child_) {
    TGR_CHECK(array.n_children == 1, where_, ": a batch of lists comes without their values");
    child_->bind(*array.children[0], 0);
  }
}

bool ArrowColumn::is_null(std::int64_t row) const {
  if (kind_ == Kind::kNull) return true;
  if (valid_ != nullptr && !bit_of(valid_, first_ + row)) return true;
  return dictionary_ && dictionary_->is_null(dictionary_row(row));
}

ArrowColumn::Span ArrowColumn::span(std::int64_t row) const {
  if (is_null(row)) return {};
  Span span;
  if (kind_ == Kind::kFixedList) {
    span = {(first_ + row) * fixed_size_, (first_ + row + 1) * fixed_size_};
  } else if (kind_ == Kind::kList) {
    span = {data<std::int32_t>()[row], data<std::int32_t>()[row + 1]};
  } else {
    span = {data<std::int64_t>()[row], data<std::int64_t>()[row + 1]};
  }
  const std::int64_t length = array_->children[0]->length;
  TGR_CHECK(span.begin >= 0 && span.begin <= span.end && span.end <= length, where_,
            ": a list runs from ", span.begin, " to ", span.end, " of ", length,
            " values; the Arrow data is damaged");
  return span;
}

std::int64_t ArrowColumn::dictionary_row(std::int64_t row) const {
  std::int64_t index = -1;
  visit_values(
      row, 1,
      [&](std::int64_t, auto value) {
        if constexpr (std::is_integral_v<decltype(value)>) {
          index =
              static_cast<std::int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): a number
        }
      },
      [](std::int64_t) {});
  const std::int64_t length = dictionary_->array_->length;
  TGR_CHECK(index >= 0 && index < length, where_, ": a value is number ", index,
            " of a dictionary of ", length, "; the Arrow data is damaged");
  return index;
}

std::string_view ArrowColumn::string(std::int64_t row) const {
  if (kind_ == Kind::kStringView) {
    const auto* view = static_cast<const char*>(array_->buffers[1]) + 16 * (first_ + row);
    std::int32_t parts[4];  // length, prefix, buffer, offset
    std::memcpy(parts, view, sizeof parts);
    TGR_CHECK(parts[0] >= 0, where_, ": a string has ", parts[0],
              " bytes; the Arrow data is damaged");
    const auto length = static_cast<std::size_t>(parts[0]);
    if (length <= 12) return {view + 4, length};
    TGR_CHECK(parts[2] >= 0 && parts[2] + 3 < array_->n_buffers, where_, ": a string lies in ",
              "buffer ", parts[2], " of ", array_->n_buffers - 3, "; the Arrow data is damaged");
    const std::int64_t size =
        static_cast<const std::int64_t*>(array_->buffers[array_->n_buffers - 1])[parts[2]];
    TGR_CHECK(parts[3] >= 0 && std::int64_t{parts[3]} + parts[0] <= size, where_, ": a string of ",
              parts[0], " bytes lies at byte ", parts[3], " of ", size,
              "; the Arrow data is damaged");
    return {static_cast<const char*>(array_->buffers[2 + parts[2]]) + parts[3], length};
  }
  const auto* characters = static_cast<const char*>(array_->buffers[2]);
  const auto part = [&](auto begin, auto end) {
    TGR_CHECK(begin >= 0 && begin <= end && end <= text_end_, where_, ": a string runs from byte ",
              begin, " to ", end, " of ", text_end_, "; the Arrow data is damaged");
    return end > begin ? std::string_view(characters + begin, static_cast<std::size_t>(end - begin))
                       : std::string_view();
  };
  if (kind_ == Kind::kString) {
    return part(data<std::int32_t>()[row], data<std::int32_t>()[row + 1]);
  }
  return part(data<std::int64_t>()[row], data<std::int64_t>()[row + 1]);
}

template <class Use, class Missing>
bool ArrowColumn::visit_values(std::int64_t row, std::int64_t count, Use&& use,
                               Missing&& missing) const {
  const auto run = [&]<class T>(const T* values) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (valid_ == nullptr || bit_of(valid_, first_ + row + i)) {
        use(i, values[row + i]);
      } else {
        missing(i);
      }
    }
    return true;
  };
  switch (kind_) {
    case Kind::kNull:
      for (std::int64_t i = 0; i < count; ++i) missing(i);
      return true;
    case Kind::kBool:
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = first_ + row + i;
        if (valid_ == nullptr || bit_of(valid_, at)) {
          use(i, bit_of(static_cast<const std::uint8_t*>(array_->buffers[1]), at));
        } else {
          missing(i);
        }
      }
      return true;
    case Kind::kInt8:
      return run(data<std::int8_t>());
    case Kind::kInt16:
      return run(data<std::int16_t>());
    case Kind::kInt32:
    case Kind::kDate32:
      return run(data<std::int32_t>());
    case Kind::kInt64:
    case Kind::kTimestamp:
      return run(data<std::int64_t>());
    case Kind::kUint8:
      return run(data<std::uint8_t>());
    case Kind::kUint16:
      return run(data<std::uint16_t>());
    case Kind::kUint32:
      return run(data<std::uint32_t>());
    case Kind::kUint64:
      return run(data<std::uint64_t>());
    case Kind::kFloat16:
      return run(data<f16>());
    case Kind::kFloat32:
      return run(data<float>());
    case Kind::kFloat64:
      return run(data<double>());
    default:
      return false;
  }
}

namespace {

// Notes what is wrong with single values and whether anything is.
struct Verdict {
  FieldError* errors;
  bool fine = true;

  void note(std::int64_t i, FieldError error) {
    errors[i] = error;
    fine = fine && error == FieldError::kNone;
  }
};

}  // namespace

bool ArrowColumn::integers(std::int64_t row, std::int64_t count, std::int64_t* out,
                           FieldError* errors) const {
  Verdict verdict{errors};
  if (dictionary_ || is_text()) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (is_null(row + i)) {
        verdict.note(i, FieldError::kEmpty);
      } else if (dictionary_) {
        dictionary_->integers(dictionary_row(row + i), 1, out + i, errors + i);
        verdict.note(i, errors[i]);
      } else {
        verdict.note(i, parse_integer(string(row + i), out[i]));
      }
    }
    return verdict.fine;
  }
  if (kind_ == Kind::kInt64 && valid_ == nullptr) {  // nothing can be wrong with these
    std::copy_n(data<std::int64_t>() + row, count, out);
    std::fill_n(errors, count, FieldError::kNone);
    return true;
  }
  visit_values(
      row, count, [&](std::int64_t i, auto value) { verdict.note(i, to_integer(value, out[i])); },
      [&](std::int64_t i) { verdict.note(i, FieldError::kEmpty); });
  return verdict.fine;
}

bool ArrowColumn::numbers(std::int64_t row, std::int64_t count, float* out,
                          FieldError* errors) const {
  Verdict verdict{errors};
  const auto missing = [&](std::int64_t i) {
    out[i] = std::numeric_limits<float>::quiet_NaN();
    verdict.note(i, FieldError::kNone);
  };
  if (dictionary_ || is_text()) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (is_null(row + i)) {
        missing(i);
      } else if (dictionary_) {
        dictionary_->numbers(dictionary_row(row + i), 1, out + i, errors + i);
        verdict.note(i, errors[i]);
      } else {
        verdict.note(i, parse_float(string(row + i), out[i]));
      }
    }
    return verdict.fine;
  }
  visit_values(
      row, count,
      [&](std::int64_t i, auto value) {
        const double number = to_double(value);
        out[i] = static_cast<float>(number);
        const bool lost = std::isinf(out[i]) && !std::isinf(number);
        verdict.note(i, lost ? FieldError::kTooLarge : FieldError::kNone);
      },
      missing);
  return verdict.fine;
}

bool ArrowColumn::signals(std::int64_t row, std::int64_t count, bool* out, bool* missing,
                          FieldError* errors) const {
  Verdict verdict{errors};
  const auto absent = [&](std::int64_t i) {
    out[i] = false;
    missing[i] = true;
    verdict.note(i, FieldError::kNone);
  };
  if (dictionary_ || is_text()) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (is_null(row + i)) {
        absent(i);
      } else if (dictionary_) {
        dictionary_->signals(dictionary_row(row + i), 1, out + i, missing + i, errors + i);
        verdict.note(i, errors[i]);
      } else {
        missing[i] = string(row + i).empty();
        verdict.note(i, parse_signal(string(row + i), out[i]));
      }
    }
    return verdict.fine;
  }
  visit_values(
      row, count,
      [&](std::int64_t i, auto value) {
        const double number = to_double(value);
        if (std::isnan(number)) return absent(i);
        out[i] = number != 0;
        missing[i] = false;
        verdict.note(i, FieldError::kNone);
      },
      absent);
  return verdict.fine;
}

bool ArrowColumn::times(std::int64_t row, std::int64_t count, TimeSpelling spelling,
                        std::int64_t* out, FieldError* errors) const {
  Verdict verdict{errors};
  if (dictionary_ || is_text()) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (is_null(row + i)) {
        verdict.note(i, FieldError::kEmpty);
      } else if (dictionary_) {
        dictionary_->times(dictionary_row(row + i), 1, spelling, out + i, errors + i);
        verdict.note(i, errors[i]);
      } else {
        const std::string_view text = string(row + i);
        verdict.note(i, text.empty() ? FieldError::kEmpty : parse_time(text, spelling, out[i]));
      }
    }
    return verdict.fine;
  }
  constexpr std::int64_t kDay = 86'400'000;
  visit_values(
      row, count,
      [&](std::int64_t i, auto value) {
        FieldError error = FieldError::kNone;
        if (is_floating()) {
          error = time_from_seconds(to_double(value), out[i]);
        } else {
          error = to_integer(value, out[i]);
          if (error == FieldError::kNone && kind_ == Kind::kTimestamp) {
            error = time_from_units(out[i], units_per_second_, out[i]);
          } else if (error == FieldError::kNone) {
            if (kind_ == Kind::kDate32) out[i] *= kDay;
            error = time_in_range(out[i]);
          }
        }
        verdict.note(i, error);
      },
      [&](std::int64_t i) { verdict.note(i, FieldError::kEmpty); });
  return verdict.fine;
}

std::string_view ArrowColumn::text(std::int64_t row, std::string& scratch, char separator) const {
  scratch.clear();
  if (is_null(row)) return {};
  if (dictionary_) return dictionary_->text(dictionary_row(row), scratch, separator);
  if (is_text()) return string(row);
  if (is_list()) {
    std::string all;
    const Span values = span(row);
    for (std::int64_t i = values.begin; i < values.end; ++i) {
      if (child_->is_null(i)) continue;
      const std::string_view value = child_->text(i, scratch, separator);
      TGR_CHECK(value.find(separator) == std::string_view::npos, where_, ": the value '",
                printable(value, 80), "' of a list has the separator '", separator,
                "' in it; name another one, as in NAME:bag:semicolon");
      if (!all.empty()) all += separator;
      all += value;
    }
    scratch = std::move(all);
    return scratch;
  }
  std::int64_t time = 0;
  FieldError error = FieldError::kNone;
  if (is_temporal()) {
    times(row, 1, TimeSpelling::kIso, &time, &error);
    return written(time, scratch);
  }
  visit_values(
      row, 1,
      [&](std::int64_t, auto value) {
        using T = decltype(value);
        if constexpr (std::is_same_v<T, bool>) {
          scratch = value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, f16>) {
          written(static_cast<float>(value), scratch);
        } else if constexpr (std::is_floating_point_v<T>) {
          if (!std::isnan(value)) written(value, scratch);
        } else if constexpr (std::is_signed_v<T>) {
          written(static_cast<std::int64_t>(value), scratch);
        } else {
          written(static_cast<std::uint64_t>(value), scratch);
        }
      },
      [](std::int64_t) {});
  return scratch;
}

}  // namespace turbogr::data
