#include "turbogr/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "turbogr/core/crc32c.h"

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace turbogr {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kAlignment = 64;  // of the first tensor, from the file's start
constexpr std::string_view kMetadataName = "__metadata__";

struct Format {
  DType dtype;
  std::string_view name;
};
constexpr std::array<Format, 7> kFormats = {{{DType::kF64, "F64"},
                                             {DType::kF32, "F32"},
                                             {DType::kBf16, "BF16"},
                                             {DType::kF16, "F16"},
                                             {DType::kI64, "I64"},
                                             {DType::kI32, "I32"},
                                             {DType::kU8, "U8"}}};

std::string_view format_name(DType dtype) {
  return std::find_if(kFormats.begin(), kFormats.end(),
                      [&](const Format& format) { return format.dtype == dtype; })
      ->name;
}

// Nothing on overflow or a negative dimension.
std::optional<std::uint64_t> bytes_of(DType dtype, const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

// One object of the header; `path` is for messages.
TensorEntry parse_entry(const std::string& path, const std::string& name,
                        const nlohmann::json& fields) {
  const auto refuse = [&](const auto&... parts) {
    detail::throw_error("'", path, "' is not a sound safetensors file: tensor '", name, "' ",
                        parts...);
  };
  if (!fields.is_object() || fields.size() != 3 || !fields.contains("dtype") ||
      !fields.contains("shape") || !fields.contains("data_offsets")) {
    refuse("has not exactly dtype, shape and data_offsets");
  }
  TensorEntry entry;
  entry.name = name;
  const nlohmann::json& dtype = fields["dtype"];
  const auto format = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& known) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == known.name;
  });
  if (format == kFormats.end()) {
    refuse("has dtype ", dtype.dump(), "; F64, F32, BF16, F16, I64, I32 and U8 can be read");
  }
  entry.dtype = format->dtype;

  const nlohmann::json& shape = fields["shape"];
  if (!shape.is_array()) refuse("has shape ", shape.dump(), ", which is not a list");
  for (const nlohmann::json& dimension : shape) {
    if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() > INT64_MAX) {
      refuse("has dimension ", dimension.dump(), ", which is not a size");
    }
    entry.shape.push_back(dimension.get<std::int64_t>());
  }

  const nlohmann::json& offsets = fields["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned() || offsets[0] > offsets[1]) {
    refuse("has data_offsets ", offsets.dump(), "; [begin, end] is wanted");
  }
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.bytes = offsets[1].get<std::uint64_t>() - entry.begin;
  const std::optional<std::uint64_t> wanted = bytes_of(entry.dtype, entry.shape);
  if (wanted != entry.bytes) {
    refuse("of shape ", shape_text(entry.shape), " and dtype ", format->name, " has ", entry.bytes,
           " bytes; its shape asks for ", wanted ? std::to_string(*wanted) : "more than there are");
  }
  return entry;
}

std::string header_text(const std::vector<TensorEntry>& entries,
                        const SafetensorsMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataName)] = metadata;
  for (const TensorEntry& entry : entries) {
    header[entry.name] = {{"dtype", format_name(entry.dtype)},
                          {"shape", entry.shape},
                          {"data_offsets", {entry.begin, entry.begin + entry.bytes}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorEntry> entries,
                                     const SafetensorsMetadata& metadata)
    : file_(path), entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return size_of(a.dtype) > size_of(b.dtype);
                   });
  std::uint64_t end = 0;
  for (TensorEntry& entry : entries_) {
    TGR_CHECK(entry.name != kMetadataName && sums_.tensors.emplace(entry.name, 0).second,
              "cannot write '", path, "': the tensor name '", entry.name,
              "' is taken; names must differ");
    const std::optional<std::uint64_t> bytes = bytes_of(entry.dtype, entry.shape);
    TGR_CHECK(bytes.has_value(), "cannot write '", path, "': tensor '", entry.name,
              "' has the impossible shape ", shape_text(entry.shape));
    entry.begin = end;
    entry.bytes = *bytes;
    end += *bytes;
  }
  const std::string text = header_text(entries_, metadata);
  const std::uint64_t length = text.size();
  file_.write(&length, kLengthBytes);
  file_.write(text);
  sums_.header = crc32c(crc32c(0, &length, kLengthBytes), text.data(), text.size());
}

void SafetensorsWriter::append(const void* data, std::uint64_t bytes) {
  file_.write(data, bytes);
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    TGR_CHECK(current_ < entries_.size(), "'", file_.path(), "': ", bytes,
              " bytes came after the last tensor was complete");
    const TensorEntry& entry = entries_[current_];
    const std::uint64_t piece = std::min(bytes, entry.bytes - within_);
    current_sum_ = crc32c(current_sum_, next, piece);
    next += piece;
    bytes -= piece;
    within_ += piece;
    if (within_ == entry.bytes) {
      sums_.tensors[entry.name] = current_sum_;
      ++current_;
      within_ = 0;
      current_sum_ = 0;
    }
  }
}

SafetensorsSums SafetensorsWriter::finish() {
  while (current_ < entries_.size() && entries_[current_].bytes == within_) {
    ++current_;  // a tensor of no bytes keeps the sum 0
    within_ = 0;
  }
  TGR_CHECK(current_ == entries_.size(), "'", file_.path(), "': tensor '",
            entries_[std::min(current_, entries_.size() - 1)].name, "' is not complete");
  file_.finish();
  sums_.file_bytes = file_.bytes();
  return sums_;
}

SafetensorsSums write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                  const SafetensorsMetadata& metadata, const TensorCopy& copy) {
  std::vector<TensorEntry> entries;
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : tensors) {
    TGR_CHECK(tensor.device == Device::kCpu || copy, "tensor '", tensor.name, "' is on ",
              name_of(tensor.device), "; copy it to the host before it is written");
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  SafetensorsWriter writer(path, std::move(entries), metadata);
  // Pieces that stay in the cache between the write and the checksum.
  constexpr std::uint64_t kPiece = 1 << 20;
  constexpr std::uint64_t kStaged = 64 << 20;
  std::vector<std::byte> staged;
  for (const TensorEntry& entry : writer.entries()) {
    const NamedTensor& tensor = *by_name.at(entry.name);
    if (tensor.device == Device::kCpu) {
      for (std::uint64_t at = 0; at < entry.bytes; at += kPiece) {
        writer.append(tensor.data + at, std::min(kPiece, entry.bytes - at));
      }
      continue;
    }
    staged.resize(std::max<std::size_t>(staged.size(), std::min(kStaged, entry.bytes)));
    for (std::uint64_t at = 0; at < entry.bytes; at += kStaged) {
      const std::uint64_t bytes = std::min(kStaged, entry.bytes - at);
      copy(staged.data(), tensor.data + at, bytes);
      writer.append(staged.data(), bytes);
    }
  }
  return writer.finish();
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  TGR_CHECK(file_.size() >= kLengthBytes, "'", path, "' is not a safetensors file: it has ",
            file_.size(), " bytes, too few for a header");
  std::uint64_t length = 0;
  std::memcpy(&length, file_.data(), kLengthBytes);
  TGR_CHECK(length <= kMaxHeaderBytes, "'", path,
            "' is not a safetensors file: its header would have ", length, " bytes; at most ",
            kMaxHeaderBytes, " are allowed");
  TGR_CHECK(length <= file_.size() - kLengthBytes, "'", path, "' is cut short: its header has ",
            length, " bytes, the file ", file_.size());
  header_bytes_ = kLengthBytes + length;
  data_ = file_.data() + header_bytes_;
  parse_header({reinterpret_cast<const char*>(file_.data()) + kLengthBytes, length},
               file_.size() - header_bytes_);
}

void SafetensorsFile::parse_header(std::string_view text, std::uint64_t data_bytes) {
  // JSON objects silently keep one of two equal keys; here that would hide a tensor.
  std::set<std::string> names;
  std::string repeated;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 &&
        !names.insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  const nlohmann::json header = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  TGR_CHECK(header.is_object(), "'", path_,
            "' is not a safetensors file: its header is not a JSON object");
  TGR_CHECK(repeated.empty(), "'", path_, "' is not a sound safetensors file: tensor '", repeated,
            "' is there twice");
  for (const auto& [name, fields] : header.items()) {
    if (name == kMetadataName) {
      TGR_CHECK(fields.is_object(), "'", path_, "': the metadata is not a JSON object");
      for (const auto& [key, value] : fields.items()) {
        TGR_CHECK(value.is_string(), "'", path_, "': the metadata '", key, "' is not a string");
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    entries_.push_back(parse_entry(path_, name, fields));
  }
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  std::uint64_t end = 0;
  for (const TensorEntry& entry : entries_) {
    TGR_CHECK(entry.begin == end, "'", path_, "' is not a sound safetensors file: tensor '",
              entry.name, "' begins at ", entry.begin, ", the one before it ends at ", end);
    end += entry.bytes;
    index_[entry.name] = static_cast<std::size_t>(&entry - entries_.data());
  }
  TGR_CHECK(end == data_bytes, "'", path_, end > data_bytes ? "' is cut short" : "' is too long",
            ": its tensors need ", end, " bytes after the header, there are ", data_bytes);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  TGR_CHECK(entry != nullptr, "'", path_, "' has no tensor '", name, "' among its ",
            entries_.size());
  return *entry;
}

void SafetensorsFile::check_view(const TensorEntry& entry, DType wanted, int rank) const {
  TGR_CHECK(entry.dtype == wanted && entry.shape.size() == static_cast<std::size_t>(rank), "'",
            path_, "': tensor '", entry.name, "' is ", name_of(entry.dtype), " of shape ",
            shape_text(entry.shape), "; ", name_of(wanted), " of rank ", rank, " was asked for");
  TGR_CHECK(reinterpret_cast<std::uintptr_t>(data(entry)) % size_of(wanted) == 0, "'", path_,
            "': tensor '", entry.name, "' is not aligned to its numbers; read it into memory");
}

void SafetensorsFile::read(const NamedTensor& into) const {
  const TensorEntry& entry = at(into.name);
  TGR_CHECK(entry.dtype == into.dtype && entry.shape == into.shape, "'", path_, "': tensor '",
            entry.name, "' is ", name_of(entry.dtype), " of shape ", shape_text(entry.shape), "; ",
            name_of(into.dtype), " of shape ", shape_text(into.shape), " is wanted");
  TGR_CHECK(into.device == Device::kCpu, "tensor '", into.name, "' is on ", name_of(into.device),
            "; read it into host memory first");
  if (entry.bytes > 0) std::memcpy(into.data, data(entry), entry.bytes);
}

std::uint32_t SafetensorsFile::header_sum() const { return crc32c(0, file_.data(), header_bytes_); }

std::uint32_t SafetensorsFile::sum_of(const TensorEntry& entry) const {
  return crc32c(0, data(entry), entry.bytes);
}

}  // namespace turbogr
