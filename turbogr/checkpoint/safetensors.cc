#include "turbogr/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "turbogr/core/crc32c.h"
#include "turbogr/core/device_memory.h"
#include "turbogr/core/json_text.h"
#include "turbogr/core/mapped_pages.h"
#include "turbogr/core/tensor.h"

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace turbogr::checkpoint {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kAlignment = 64;          // of the first tensor, from the file's start
constexpr std::uint64_t kSummedBytes = 16 << 20;  // of a mapped tensor, before its pages are let go
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

// With the 8 bytes of its length.
std::string header_of(const std::vector<TensorEntry>& entries,
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
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

// Where each tensor goes in a file.
template <class Described>  // NamedTensor or TensorStream
std::vector<TensorEntry> layout_of(const std::string& path, const std::vector<Described>& tensors) {
  std::vector<TensorEntry> entries;
  std::set<std::string> names;
  for (const Described& tensor : tensors) {
    TGR_CHECK(tensor.name != kMetadataName && names.insert(tensor.name).second, "cannot write '",
              path, "': the tensor name '", tensor.name, "' is taken; names must differ");
    const std::optional<std::uint64_t> bytes = bytes_of(tensor.dtype, tensor.shape);
    TGR_CHECK(bytes.has_value(), "cannot write '", path, "': tensor '", tensor.name,
              "' has the impossible shape ", shape_text(tensor.shape));
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, 0, *bytes});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return size_of(a.dtype) > size_of(b.dtype);
  });
  std::uint64_t end = 0;
  for (TensorEntry& entry : entries) {
    entry.begin = end;
    end += entry.bytes;
  }
  return entries;
}

template <class Described>
std::map<std::string_view, const Described*> by_name(const std::vector<Described>& tensors) {
  std::map<std::string_view, const Described*> named;
  for (const Described& tensor : tensors) named[tensor.name] = &tensor;
  return named;
}

// A stretch of a tensor, the unit of work: it stays in the cache between the checksum and the
// write.
constexpr std::uint64_t kPieceBytes = 4 << 20;
struct Piece {
  const NamedTensor* tensor;
  std::uint64_t at;      // in the tensor
  std::uint64_t offset;  // in the file
  std::uint64_t bytes;
  std::uint32_t sum = 0;
};

std::vector<Piece> pieces_of(const std::vector<NamedTensor>& tensors,
                             const std::vector<TensorEntry>& entries, std::uint64_t header_bytes) {
  const auto named = by_name(tensors);
  std::vector<Piece> pieces;
  for (const TensorEntry& entry : entries) {
    for (std::uint64_t at = 0; at < entry.bytes; at += kPieceBytes) {
      pieces.push_back({named.at(entry.name), at, header_bytes + entry.begin + at,
                        std::min(kPieceBytes, entry.bytes - at)});
    }
  }
  return pieces;
}

// A thread's own way to a GPU's memory: a stream and room for a piece.
class Staging {
 public:
  explicit Staging(const Context& device)
      : ctx_((bind_thread(device), ContextOptions{.device = device.device(), .threads = 1})),
        room_(DType::kU8, {static_cast<std::int64_t>(kPieceBytes)}, Device::kPinned) {}

  const std::byte* fetch(const std::byte* from, std::uint64_t bytes) {
    copy_bytes(ctx_, room_.data(), from, bytes);
    synchronize(ctx_);
    return room_.data();
  }

 private:
  Context ctx_;
  Tensor room_;
};

}  // namespace

SafetensorsSums write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                  const SafetensorsMetadata& metadata,
                                  const SafetensorsWriteOptions& options) {
  for (const NamedTensor& tensor : tensors) {
    TGR_CHECK(tensor.device != Device::kCuda || options.device != nullptr, "tensor '", tensor.name,
              "' is on ", name_of(tensor.device), "; copy it to the host before it is written");
  }
  const std::vector<TensorEntry> entries = layout_of(path, tensors);
  const std::string header = header_of(entries, metadata);
  OutputFile file(path);
  file.write(header);
  SafetensorsSums sums;
  sums.header = crc32c(0, header.data(), header.size());

  std::vector<Piece> pieces = pieces_of(tensors, entries, header.size());
  ThreadPool pool(options.threads);
  std::vector<std::unique_ptr<Staging>> staging(static_cast<std::size_t>(pool.size()));
  parallel_for(pool, std::ssize(pieces), [&](std::int64_t index, int worker) {
    Piece& piece = pieces[static_cast<std::size_t>(index)];
    const std::byte* data = piece.tensor->data + piece.at;
    if (piece.tensor->device == Device::kCuda) {
      auto& own = staging[static_cast<std::size_t>(worker)];
      if (own == nullptr) own = std::make_unique<Staging>(*options.device);
      data = own->fetch(data, piece.bytes);
    }
    piece.sum = crc32c(0, data, piece.bytes);
    file.write_at(piece.offset, data, piece.bytes);
  });
  file.finish();

  for (const TensorEntry& entry : entries) sums.tensors[entry.name] = 0;
  sums.file_bytes = header.size();
  for (const Piece& piece : pieces) {
    std::uint32_t& sum = sums.tensors[piece.tensor->name];
    sum = crc32c_joined(sum, piece.sum, piece.bytes);
    sums.file_bytes += piece.bytes;
  }
  return sums;
}

void stream_safetensors(const std::string& path, const std::vector<TensorStream>& tensors,
                        const SafetensorsMetadata& metadata) {
  const std::vector<TensorEntry> entries = layout_of(path, tensors);
  const auto named = by_name(tensors);
  OutputFile file(path);
  file.write(header_of(entries, metadata));
  for (const TensorEntry& entry : entries) {
    const std::uint64_t before = file.bytes();
    named.at(entry.name)->write(file);
    TGR_CHECK(file.bytes() - before == entry.bytes, "cannot write '", path, "': tensor '",
              entry.name, "' of shape ", shape_text(entry.shape), " came as ",
              file.bytes() - before, " bytes; ", entry.bytes, " are wanted");
  }
  file.finish();
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
  TGR_CHECK(!nests_too_deep(text), "'", path_,
            "' is not a safetensors file: its header nests lists or objects too deep");
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

std::uint32_t SafetensorsFile::sum_of(ThreadPool& pool, const TensorEntry& entry) const {
  std::uint32_t sum = 0;
  for (std::uint64_t at = 0; at < entry.bytes; at += kSummedBytes) {
    const std::uint64_t bytes = std::min(kSummedBytes, entry.bytes - at);
    sum = crc32c_joined(sum, crc32c(pool, data(entry) + at, bytes), bytes);
    forget_pages(data(entry) + at, bytes);
  }
  return sum;
}

}  // namespace turbogr::checkpoint
