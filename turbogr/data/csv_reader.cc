#include "turbogr/data/csv_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "turbogr/core/check.h"
#include "turbogr/data/interrupt.h"

namespace turbogr::data {
namespace {

// The high bit of every byte of `word` that equals the byte `pattern` repeats; exact for all bytes.
std::uint64_t equal_bytes(std::uint64_t word, std::uint64_t pattern) {
  constexpr std::uint64_t kLow7 = 0x7f7f7f7f7f7f7f7fu;
  const std::uint64_t x = word ^ pattern;
  return ~(((x & kLow7) + kLow7) | x | kLow7);
}

}  // namespace

CsvReader::CsvReader(ByteSource& source, std::string name, CsvDialect dialect, std::size_t block)
    : source_(source),
      name_(std::move(name)),
      buffer_(std::clamp<std::size_t>(block, 1, kLongestRecord)) {
  set_dialect(std::move(dialect));
}

void CsvReader::set_dialect(CsvDialect dialect) {
  TGR_CHECK(dialect.delimiter.size() == 1 || dialect.delimiter.size() == 2,
            "a delimiter has one or two characters, not '", dialect.delimiter, "'");
  dialect_ = std::move(dialect);
  look_for_quotes();  // what peek() has read was looked at with the dialect before
}

void CsvReader::look_for_quotes() {
  has_quotes_ = dialect_.quotes && std::memchr(buffer_.data(), '"', end_) != nullptr;
}

std::string_view CsvReader::peek() {
  if (!started_) {
    started_ = true;
    // A first line longer than a block would look cut short.
    while (std::memchr(buffer_.data(), '\n', end_) == nullptr && refill()) {
      const std::string_view so_far(buffer_.data(), end_);
      TGR_CHECK(
          so_far.find('\n') != std::string_view::npos || so_far.find('\r') >= so_far.size() - 1,
          "'", name_,
          "' ends its lines in CR alone, as old Macintosh programs wrote them; convert it: "
          "tr '\\r' '\\n' < OLD > NEW");
    }
    const std::string_view bytes(buffer_.data(), end_);
    TGR_CHECK(!bytes.starts_with("\xff\xfe") && !bytes.starts_with("\xfe\xff"), "'", name_,
              "' is UTF-16 text; convert it to UTF-8");
    if (bytes.starts_with("\xef\xbb\xbf")) begin_ = 3;
  }
  return {buffer_.data() + begin_, end_ - begin_};
}

bool CsvReader::refill() {
  if (source_ended_) return false;
  check_interrupt();
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    TGR_CHECK(buffer_.size() < kLongestRecord, "'", name_, "', line ", next_line_,
              ": a record of more than ", kLongestRecord >> 20,
              " MB; is a quote left open, or is this not delimited text?");
    buffer_.resize(std::min(2 * buffer_.size(), kLongestRecord));
  }
  const std::size_t count = source_.read({buffer_.data() + end_, buffer_.size() - end_});
  source_ended_ = count < buffer_.size() - end_;
  end_ += count;
  look_for_quotes();
  return count > 0;
}

// The place just past the record that starts at begin_, from `from` on; npos when it is not all
// here.
std::size_t CsvReader::find_record_end(std::size_t from) {
  const char* data = buffer_.data();
  if (!has_quotes_) {
    const void* at = std::memchr(data + from, '\n', end_ - from);
    if (at == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(at) - data) + 1;
  }
  // A quote opens only at the start of a field, as split_carefully reads it.
  const char delimiter = dialect_.delimiter.back();
  bool inside = false;
  bool field_start = true;
  for (std::size_t i = begin_; i < end_; ++i) {
    const char c = data[i];
    if (inside) {
      if (c == '"') {
        if (i + 1 < end_ && data[i + 1] == '"') {
          ++i;
        } else {
          inside = false;
        }
      }
      continue;
    }
    if (c == '\n') return i + 1;
    inside = c == '"' && field_start;
    field_start = c == delimiter;
  }
  unclosed_quote_ = inside;
  return std::string_view::npos;
}

bool CsvReader::next() {
  if (!started_) peek();
  while (true) {
    unclosed_quote_ = false;
    std::size_t past = find_record_end(begin_);
    while (past == std::string_view::npos) {
      const std::size_t seen = end_ - begin_;
      if (!refill()) break;
      unclosed_quote_ = false;
      past = find_record_end(begin_ + seen);
    }
    at_end_without_newline_ = past == std::string_view::npos;
    if (at_end_without_newline_) {
      if (begin_ == end_) return false;
      past = end_;
    }
    std::size_t end = past - (at_end_without_newline_ ? 0 : 1);
    if (end > begin_ && buffer_[end - 1] == '\r') --end;
    text_ = {buffer_.data() + begin_, end - begin_};
    line_ = next_line_;
    num_lines_ = 1;
    if (has_quotes_) num_lines_ += std::count(text_.begin(), text_.end(), '\n');
    if (text_.ends_with('\n')) --num_lines_;  // an open quote took the last line break, too
    next_line_ += num_lines_;
    begin_ = past;
    if (!text_.empty()) break;
  }
  fields_.clear();
  if (has_quotes_ && std::memchr(text_.data(), '"', text_.size()) != nullptr) {
    split_carefully(/*quotes=*/true);
  } else if (text_.size() > kMostFields) {  // shorter ones cannot have too many
    split_carefully(/*quotes=*/false);
  } else {
    split_plain();
  }
  return true;
}

void CsvReader::split_plain() {
  const char* start = text_.data();
  const char* const end = start + text_.size();
  const char first = dialect_.delimiter[0];
  if (dialect_.delimiter.size() == 2) {
    const char second = dialect_.delimiter[1];
    for (const char* p = start; p + 1 < end; ++p) {
      if (p[0] != first || p[1] != second) continue;
      fields_.emplace_back(start, static_cast<std::size_t>(p - start));
      start = ++p + 1;
    }
    fields_.emplace_back(start, static_cast<std::size_t>(end - start));
    return;
  }
  const std::uint64_t pattern = 0x0101010101010101u * static_cast<unsigned char>(first);
  const char* p = start;
  for (; end - p >= 8; p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    for (std::uint64_t hits = equal_bytes(word, pattern); hits != 0; hits &= hits - 1) {
      const char* at = p + (std::countr_zero(hits) >> 3);
      fields_.emplace_back(start, static_cast<std::size_t>(at - start));
      start = at + 1;
    }
  }
  for (; p < end; ++p) {
    if (*p != first) continue;
    fields_.emplace_back(start, static_cast<std::size_t>(p - start));
    start = p + 1;
  }
  fields_.emplace_back(start, static_cast<std::size_t>(end - start));
}

void CsvReader::split_carefully(bool quotes) {
  // Room for all of it at once: views into this string must not move.
  unquoted_.clear();
  if (quotes) unquoted_.reserve(text_.size());
  const std::string_view delimiter = dialect_.delimiter;
  std::size_t at = 0;
  while (true) {
    if (fields_.size() == kMostFields) return fields_.push_back(text_.substr(at));
    if (quotes && at < text_.size() && text_[at] == '"') {
      const std::size_t start = unquoted_.size();
      const std::size_t opened = at;
      ++at;
      while (at < text_.size()) {
        if (text_[at] != '"') {
          unquoted_ += text_[at++];
        } else if (at + 1 < text_.size() && text_[at + 1] == '"') {
          unquoted_ += '"';
          at += 2;
        } else {
          ++at;
          break;
        }
      }
      // What stands between a closing quote and the delimiter belongs to the field.
      const std::size_t stop = std::min(text_.find(delimiter, at), text_.size());
      if (stop > at && text_.substr(opened, at - opened).find('\n') != std::string_view::npos) {
        unclosed_quote_ = true;
      }
      unquoted_.append(text_.substr(at, stop - at));
      fields_.emplace_back(unquoted_.data() + start, unquoted_.size() - start);
      at = stop;
    } else {
      const std::size_t stop = std::min(text_.find(delimiter, at), text_.size());
      fields_.push_back(text_.substr(at, stop - at));
      at = stop;
    }
    if (at >= text_.size()) return;
    at += delimiter.size();
  }
}

}  // namespace turbogr::data
