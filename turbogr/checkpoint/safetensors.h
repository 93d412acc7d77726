// safetensors files: 8 bytes of header length, a JSON header, the tensors end to end. Any tool that
// knows the format reads what is written here; a file that breaks its rules is an Error that says
// which one.
//
//   write_safetensors("w.safetensors", {named("w", w)}, {{"made_by", "turbogr"}});
//   SafetensorsFile file("w.safetensors");
//   file.read(named("w", w));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "turbogr/core/check.h"
#include "turbogr/core/context.h"
#include "turbogr/core/dtype.h"
#include "turbogr/core/file.h"
#include "turbogr/core/named_tensor.h"
#include "turbogr/core/output_file.h"
#include "turbogr/core/thread_pool.h"
#include "turbogr/core/view.h"

namespace turbogr::checkpoint {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // from the first byte after the header
  std::uint64_t bytes = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// CRC-32C of the header (its length included) and of each tensor: together they cover every byte.
struct SafetensorsSums {
  std::uint64_t file_bytes = 0;
  std::uint32_t header = 0;
  std::map<std::string, std::uint32_t> tensors;
};

struct SafetensorsWriteOptions {
  int threads = 1;
  const Context* device = nullptr;  // of the tensors on a GPU; their thread's work is done
};

// On the disk when it returns. A GPU's tensors come a piece at a time, so that one need not fit the
// host's memory. Wide formats first in the file, so that each tensor is aligned.
SafetensorsSums write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                                  const SafetensorsMetadata& metadata = {},
                                  const SafetensorsWriteOptions& options = {});

// A tensor that is made while it is written, so that it need not fit the memory.
struct TensorStream {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::function<void(OutputFile&)> write;  // all of its bytes, front to back
};

// The same file, of tensors that come one after the other.
void stream_safetensors(const std::string& path, const std::vector<TensorStream>& tensors,
                        const SafetensorsMetadata& metadata = {});

// A file mapped for reading. The header is checked in full when it is opened.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  const SafetensorsMetadata& metadata() const { return metadata_; }
  std::uint64_t file_bytes() const { return file_.size(); }

  const TensorEntry* find(std::string_view name) const;  // null when absent
  const TensorEntry& at(std::string_view name) const;    // throws when absent
  const std::byte* data(const TensorEntry& entry) const { return data_ + entry.begin; }

  // The tensor in place; throws on another format or rank.
  template <class T, int Rank>
  View<const T, Rank> view(std::string_view name) const {
    const TensorEntry& entry = at(name);
    check_view(entry, dtype_of<T>(), Rank);
    View<const T, Rank> view;
    view.data = reinterpret_cast<const T*>(data(entry));
    for (int axis = 0; axis < Rank; ++axis)
      view.shape[axis] = entry.shape[static_cast<std::size_t>(axis)];
    return view;
  }

  // Copies into memory of the same name, format and shape.
  void read(const NamedTensor& into) const;

  std::uint32_t header_sum() const;
  std::uint32_t sum_of(ThreadPool& pool, const TensorEntry& entry) const;

 private:
  void parse_header(std::string_view text, std::uint64_t data_bytes);
  void check_view(const TensorEntry& entry, DType wanted, int rank) const;

  std::string path_;
  MappedFile file_;
  std::uint64_t header_bytes_ = 0;  // with the 8 of its length
  const std::byte* data_ = nullptr;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  SafetensorsMetadata metadata_;
};

}  // namespace turbogr::checkpoint
